import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isKernelError } from "#kernel/errors";
import { decodeMessages } from "#kernel/netlink";
import { decodeElements, ElementBatch, type ElementValue, type RawElement } from "./index.ts";

const table = { family: "ip6", name: "t" } as const;
const bytes = (max: number) =>
  fc.uint8Array({ minLength: 1, maxLength: max }).map((array) => Buffer.from(array).toString("latin1"));
const verdict = fc.oneof(
  fc.constantFrom<ElementValue>({ kind: "accept" }, { kind: "drop" }),
  fc
    .tuple(fc.constantFrom("goto" as const, "jump" as const), fc.stringMatching(/^[a-z][a-z0-9-]{0,40}$/))
    .map(([kind, chain]) => ({ kind, chain })),
);
const element: fc.Arbitrary<RawElement> = fc
  .record({
    key: bytes(64),
    value: fc.option(fc.oneof(bytes(64), verdict), { nil: undefined }),
    comment: fc.option(fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }), { nil: undefined }),
  })
  .map(({ key, value, comment }) => ({
    key,
    ...(value === undefined ? {} : { value }),
    ...(comment === undefined || comment.includes("\0") ? {} : { comment }),
  }));

test("decodeElements: reads back what a batch wrote, in order", () => {
  fc.assert(
    fc.property(fc.array(element, { maxLength: 200 }), (elements) => {
      const batch = new ElementBatch(table);
      for (const { key, value, comment } of elements) batch.add("s", key, value, comment);
      const messages = [...decodeMessages(Buffer.from(batch.finish()))].slice(1, -1);
      assert.deepEqual(
        messages.flatMap(({ payload }) => decodeElements(payload)),
        elements,
      );
    }),
  );
});

test("decodeElements: any bytes give elements or our error", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (array) => {
      try {
        decodeElements(Buffer.from(array));
      } catch (error) {
        assert.ok(isKernelError(error), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test("ElementBatch: refuses what the kernel could not take", () => {
  assert.throws(() => new ElementBatch(table).add("s", ""), { name: "KernelError", code: "invalid" });
  assert.throws(() => new ElementBatch(table).add("s", "x".repeat(65)), { code: "invalid" });
  assert.throws(() => new ElementBatch(table).add("s", "x", "y".repeat(65)), { code: "invalid" });
  assert.throws(() => new ElementBatch(table).add("s", "x", "y", "c".repeat(128)), { code: "invalid" });
});
