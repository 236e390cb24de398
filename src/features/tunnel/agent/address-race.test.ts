import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { sleep } from "#base/async";
import { FakeClock } from "#base/clock";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import { AddressRace } from "./address-race.ts";

type Kind = "new" | "known" | "failure";

/** The outcome of one attempt. `heeds`: an abort ends it at once; otherwise its stream comes all the same. */
interface Outcome {
  readonly kind: Kind;
  readonly afterMs: number;
  readonly heeds: boolean;
}

const outcome = fc.record<Outcome>({
  kind: fc.constantFrom<Kind>("new", "known", "failure"),
  afterMs: fc.constantFrom(0, 10, 499, 500, 501, 2000, 20_000),
  heeds: fc.boolean(),
});
const race = fc.record({
  addresses: fc.array(outcome, { minLength: 1, maxLength: 5 }),
  beside: fc.array(outcome, { maxLength: 4 }),
  abortAfterMs: fc.option(fc.constantFrom(0, 300, 3000), { nil: undefined, freq: 5 }),
});

test("AddressRace: whatever the addresses do, it ends with a new server if one of them leads to it, and every other stream is discarded", async () => {
  await fc.assert(
    fc.asyncProperty(race, async ({ addresses, beside, abortAfterMs }) => {
      const clock = new FakeClock();
      const open = new Set<OpenedStream>();
      const fresh = new Set<OpenedStream>();
      const stop = new AbortController();
      const tried: Outcome[] = [];
      const attempt = async (one: Outcome, { signal }: { readonly signal: AbortSignal }): Promise<OpenedStream> => {
        tried.push(one);
        await sleep(one.afterMs, { clock, ...(one.heeds ? { signal } : {}) });
        if (one.kind === "failure") throw new LinkError("unreachable", "down");
        const stream: OpenedStream = {
          ...{ headers: {}, pulse: new FakePulse(), onLeaving: () => undefined },
          start: () => assert.fail("nobody starts it"),
          discard: () => assert.ok(open.delete(stream), "it is discarded once"),
        };
        open.add(stream);
        if (one.kind === "new") fresh.add(stream);
        return stream;
      };
      const further = [...beside];
      const running = AddressRace.run(
        addresses,
        { clock, attempt, isNew: (stream) => fresh.has(stream), beside: () => further.shift() },
        { signal: stop.signal },
      ).catch((error: unknown) => error);
      if (abortAfterMs !== undefined) {
        await clock.advance(abortAfterMs);
        stop.abort(new Error("enough"));
      }
      await clock.advance(200_000);
      const result = await running;
      assert.equal(clock.pending, 0);
      if (result instanceof Error) {
        assert.deepEqual([result.message, open.size], ["enough", 0]);
        return;
      }
      const { stream, error, hasKnown } = result as Awaited<ReturnType<typeof AddressRace.run>>;
      assert.deepEqual([...open], stream === undefined ? [] : [stream]);
      assert.ok(stream === undefined || fresh.has(stream));
      if (stream !== undefined) return;
      assert.ok(addresses.every(({ kind }) => kind !== "new") && addresses.every((one) => tried.includes(one)));
      assert.equal(
        hasKnown,
        addresses.some(({ kind }) => kind === "known"),
      );
      assert.equal(
        error !== undefined,
        addresses.some(({ kind }) => kind === "failure"),
      );
    }),
    { numRuns: 500 },
  );
});
