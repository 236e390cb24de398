import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type AbortSignalLike, LightAbortSignal } from "./index.ts";

const LISTENERS = 3;

interface Step {
  readonly act: "add" | "remove" | "abort";
  readonly listener: number;
}

/** Runs the steps, and inside each call of a listener the next step of the inner list. Returns the observations in order. */
function seen(
  signal: AbortSignalLike,
  abort: (reason: unknown) => void,
  steps: readonly Step[],
  inside: readonly Step[],
) {
  const calls: string[] = [];
  const left = [...inside];
  const listeners = Array.from({ length: LISTENERS }, (_, at) => (): void => {
    calls.push(`${at} is called with ${String(signal.reason)}`);
    const next = left.shift();
    if (next !== undefined) take(next);
  });
  const take = ({ act, listener }: Step): void => {
    const one = listeners[listener] ?? assert.fail();
    if (act === "add") signal.addEventListener("abort", one, { once: true });
    else if (act === "remove") signal.removeEventListener("abort", one);
    else abort(`reason ${listener}`);
    calls.push(`${act} ${listener}: ${signal.aborted} ${String(signal.reason)}`);
  };
  for (const step of steps) take(step);
  return calls;
}

test("LightAbortSignal: calls the same listeners with the same reason as an AbortController (model)", () => {
  const steps = (...acts: readonly Step["act"][]): fc.Arbitrary<Step[]> =>
    fc.array(fc.record({ act: fc.constantFrom(...acts), listener: fc.nat(LISTENERS - 1) }));
  fc.assert(
    fc.property(steps("add", "add", "remove", "abort"), steps("remove", "abort"), (outside, inside) => {
      const stop = new LightAbortSignal();
      const controller = new AbortController();
      assert.deepEqual(
        seen(stop, (reason) => stop.abort(reason), outside, inside),
        seen(controller.signal, (reason) => controller.abort(reason), outside, inside),
      );
    }),
    { numRuns: 500 },
  );
});

test("LightAbortSignal: a listener that throws does not stop the others, and abort() throws its error", () => {
  const stop = new LightAbortSignal();
  const called: number[] = [];
  for (const at of [1, 2, 3]) {
    stop.addEventListener("abort", () => {
      called.push(at);
      if (at !== 1) throw new Error(`listener ${at}`);
    });
  }
  assert.throws(() => stop.abort("over"), /^Error: listener 2$/);
  assert.deepEqual(called, [1, 2, 3]);
  stop.abort("again");
  assert.equal(stop.reason, "over");
});

test("LightAbortSignal: throwIfAborted throws the reason, once there is one", () => {
  const stop = new LightAbortSignal();
  stop.throwIfAborted();
  const reason = new Error("enough");
  stop.abort(reason);
  assert.throws(
    () => stop.throwIfAborted(),
    (error) => error === reason,
  );
});
