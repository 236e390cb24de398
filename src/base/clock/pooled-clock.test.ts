import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Clock, FakeClock, PooledClock, systemClock } from "./index.ts";

interface Step {
  readonly act: "wait" | "cancel" | "advance";
  readonly ms: number;
  readonly which: number;
}

/** Takes the steps, and inside each callback the next of those that are to be taken there; what happened when, in order. */
async function happened(
  clock: Clock,
  fake: FakeClock,
  steps: readonly Step[],
  inside: readonly Step[],
): Promise<string[]> {
  const calls: string[] = [];
  const cancels: (() => void)[] = [];
  const left = [...inside];
  const take = ({ act, ms, which }: Step): void => {
    if (act === "wait") {
      const name = cancels.length;
      const fired = (): void => {
        calls.push(`${name} at ${clock.monotonic()}`);
        const next = left.shift();
        if (next !== undefined) take(next);
      };
      cancels.push(clock.after(ms, fired));
    } else if (act === "cancel" && cancels.length > 0) cancels[which % cancels.length]?.();
  };
  for (const step of steps) {
    if (step.act === "advance") await fake.advance(step.ms);
    else take(step);
  }
  await fake.advance(1000);
  return calls;
}

const stepsOf = (...acts: readonly Step["act"][]): fc.Arbitrary<Step[]> =>
  fc.array(
    fc.record({
      act: fc.constantFrom(...acts),
      // More lengths than there are queues, and some that many have.
      ms: fc.oneof(fc.constantFrom(0, 10, 10, 25), fc.nat(60)),
      which: fc.nat(100),
    }),
    { maxLength: 80 },
  );

test("PooledClock: who is called, when and in which order is as with the clock below", async () => {
  await fc.assert(
    fc.asyncProperty(
      stepsOf("wait", "wait", "cancel", "advance"),
      stepsOf("wait", "cancel"),
      async (outside, inside) => {
        const [plain, below] = [new FakeClock(), new FakeClock()];
        const wanted = await happened(plain, plain, outside, inside);
        assert.deepEqual(await happened(new PooledClock(below), below, outside, inside), wanted);
        assert.equal(below.pending, 0);
      },
    ),
    { numRuns: 40 },
  );
});

test("PooledClock: a thousand waits of one length are one timer below, and none when the last is cancelled", async () => {
  const below = new FakeClock();
  const clock = new PooledClock(below);
  const cancels: (() => void)[] = [];
  for (let at = 0; at < 1000; at += 1) cancels.push(clock.after(50, () => assert.fail("cancelled")));
  assert.equal(below.pending, 1);
  for (const cancel of cancels) cancel();
  for (const cancel of cancels) cancel();
  assert.equal(below.pending, 0);
  // Lengths that nobody needs any more make room for others.
  for (let ms = 1; ms <= 1000; ms += 1) clock.after(ms, () => assert.fail("cancelled"))();
  let calls = 0;
  for (let at = 0; at < 1000; at += 1) clock.after(7, () => (calls += 1));
  assert.equal(below.pending, 1);
  await below.advance(7);
  assert.deepEqual([calls, below.pending], [1000, 0]);
});

test("PooledClock: what one callback throws goes to the clock below, and the others are called", () => {
  const timers: (() => void)[] = [];
  let now = 0;
  const below: Clock = {
    now: () => now,
    monotonic: () => now,
    after(_delayMs, callback) {
      timers.push(callback);
      return () => undefined;
    },
  };
  const clock = new PooledClock(below);
  const called: string[] = [];
  clock.after(5, () => {
    called.push("first");
    throw new Error("first");
  });
  clock.after(5, () => called.push("second"));
  // Early, as Node's timers are by a fraction of a millisecond.
  now = 4.6;
  assert.throws(() => timers.shift()?.(), /^Error: first$/);
  assert.deepEqual([called, timers.length], [["first"], 1]);
  timers.shift()?.();
  assert.deepEqual([called, timers.length], [["first", "second"], 0]);
});

test("PooledClock: over the real clock nobody is called early, and unref lets the program end", async () => {
  const clock = new PooledClock(systemClock);
  clock.after(1e6, () => assert.fail("nobody waits for it"), { unref: true });
  const from = clock.monotonic();
  await Promise.all([1, 5, 5, 12].map((ms) => new Promise<void>((resolve) => clock.after(ms, resolve))));
  assert.ok(clock.monotonic() - from >= 11);
  assert.ok(Math.abs(clock.now() - Date.now()) < 1000);
});
