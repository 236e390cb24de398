import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isKernelError } from "#kernel/errors";
import { Attributes, decodeMessages } from "#kernel/netlink";
import { decodeRule } from "./decode.ts";
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

test("decodeRule: any bytes, also in the place of expressions and comments, give a rule or our error", () => {
  const attribute = (type: number, payload: Uint8Array): Buffer => {
    const head = Buffer.alloc(4);
    head.writeUInt16LE(4 + payload.length, 0);
    head.writeUInt16LE(type, 2);
    return Buffer.concat([head, payload, Buffer.alloc(-payload.length & 3)]);
  };
  const any = fc.uint8Array({ maxLength: 60 });
  fc.assert(
    fc.property(any, any, any, (name, data, comment) => {
      const counter = attribute(1, Buffer.concat([attribute(1, Buffer.from("counter\0")), attribute(2, data)]));
      for (const bytes of [name, Buffer.concat([attribute(2, name), attribute(4, counter), attribute(7, comment)])])
        try {
          decodeRule(Attributes.parse(Buffer.from(bytes)));
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
