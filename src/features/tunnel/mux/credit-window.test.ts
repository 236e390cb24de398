import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { CreditWindow } from "./credit-window.ts";
import { IDLE_MS, WindowPool } from "./window-pool.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const NEAR = MIB;
const MAX = 16 * MIB;

interface Link {
  readonly roundTripMs: number;
  /** The rate of the link, in bytes per millisecond. */
  readonly bytesPerMs: number;
  /** The rate of the reader, in bytes per millisecond. Default: no limit. */
  readonly readsPerMs?: number;
  /** One packet in so many is lost: what comes behind it waits for a round trip. Default: none. */
  readonly lossOneIn?: number;
}

/**
 * A peer that always has bytes, over a link. Time goes in milliseconds. Returns the bytes that the reader has taken, and the most that waited for it.
 */
function run(
  window: CreditWindow,
  { now, ms }: { readonly now: number; readonly ms: number },
  { roundTripMs, bytesPerMs, readsPerMs = Number.POSITIVE_INFINITY, lossOneIn }: Link,
): { readonly taken: number; readonly most: number } {
  const packet = 64 * KIB;
  const half = roundTripMs / 2;
  let [credit, held, taken, most, wire, packets, stalledUntil] = [window.creditOf(0), 0, 0, 0, 0, 0, 0];
  const arrivals: { readonly at: number; readonly bytes: number }[] = [];
  let grants: { readonly at: number; readonly bytes: number }[] = [];
  for (let at = now; at < now + ms; at += 1) {
    for (; grants[0] !== undefined && grants[0].at <= at; grants = grants.slice(1)) credit += grants[0].bytes;
    for (wire += bytesPerMs; credit > 0 && wire > 0; ) {
      const bytes = Math.min(packet, credit);
      credit -= bytes;
      wire -= bytes;
      arrivals.push({ at: at + half, bytes });
    }
    wire = Math.min(wire, 0);
    while (at >= stalledUntil && arrivals[0] !== undefined && arrivals[0].at <= at) {
      held += arrivals.shift()?.bytes ?? 0;
      packets += 1;
      if (lossOneIn !== undefined && packets % lossOneIn === 0) stalledUntil = at + roundTripMs;
    }
    most = Math.max(most, held);
    const read = Math.min(held, readsPerMs);
    if (read === 0) continue;
    held -= read;
    taken += read;
    const back = window.taken(read, { heldBytes: held, isOver: false, roundTripMs, now: () => at });
    if (back > 0) grants.push({ at: at + half, bytes: back });
  }
  return { taken, most };
}

const roomy = (): WindowPool => new WindowPool(1024 * MIB, new FakeClock());

test("CreditWindow: on a near link it stays at 1 MiB, however fast the link and its reader are", () => {
  const window = new CreditWindow(roomy());
  run(window, { now: 0, ms: 3000 }, { roundTripMs: 1, bytesPerMs: 1_000_000 });
  assert.equal(window.windowBytes, NEAR);
  const busy = new CreditWindow(roomy());
  run(busy, { now: 0, ms: 3000 }, { roundTripMs: 2, bytesPerMs: 200_000 });
  assert.equal(busy.windowBytes, NEAR);
});

test("CreditWindow: a far link is used up, with lost packets too, by a window of a few times what it holds, after fifteen round trips", () => {
  const cases: readonly (readonly [link: Link, part: number])[] = [
    [{ roundTripMs: 10, bytesPerMs: 100_000 }, 0.9],
    [{ roundTripMs: 50, bytesPerMs: 60_000 }, 0.9],
    [{ roundTripMs: 200, bytesPerMs: 20_000 }, 0.9],
    [{ roundTripMs: 50, bytesPerMs: 60_000, lossOneIn: 200 }, 0.7],
    [{ roundTripMs: 200, bytesPerMs: 20_000, lossOneIn: 200 }, 0.7],
  ];
  for (const [link, part] of cases) {
    const window = new CreditWindow(roomy());
    const growMs = 15 * link.roundTripMs;
    run(window, { now: 0, ms: growMs }, link);
    const { taken } = run(window, { now: growMs, ms: 10_000 }, link);
    const could = 10_000 * link.bytesPerMs;
    const product = link.roundTripMs * link.bytesPerMs;
    assert.ok(taken >= part * could, `${JSON.stringify(link)}: ${taken / could}`);
    assert.ok(window.windowBytes <= Math.max(NEAR, 6 * product), `${JSON.stringify(link)}: ${window.windowBytes}`);
  }
});

test("CreditWindow: a far and slow link keeps a small window, and a reader that is slow holds no more than on a near link", () => {
  const slow = new CreditWindow(roomy());
  run(slow, { now: 0, ms: 10_000 }, { roundTripMs: 100, bytesPerMs: 2000 });
  assert.equal(slow.windowBytes, NEAR);
  const window = new CreditWindow(roomy());
  const { most } = run(window, { now: 0, ms: 10_000 }, { roundTripMs: 100, bytesPerMs: 100_000, readsPerMs: 2000 });
  assert.ok(window.windowBytes <= NEAR && most <= NEAR, `${window.windowBytes}, ${most}`);
});

test("CreditWindow: all windows together exceed those of near links by no more than the pool has, and one that ends gives its part to others", () => {
  const pool = new WindowPool(12 * MIB, new FakeClock());
  const link: Link = { roundTripMs: 100, bytesPerMs: 100_000 };
  const windows = Array.from({ length: 20 }, () => new CreditWindow(pool));
  for (const window of windows) run(window, { now: 0, ms: 3000 }, link);
  const sum = windows.reduce((bytes, { windowBytes }) => bytes + windowBytes - NEAR, 0);
  assert.ok(sum === pool.taken && pool.taken <= 12 * MIB && pool.taken > 6 * MIB, `${sum}, ${pool.taken}`);
  const large = windows.find(({ windowBytes }) => windowBytes > NEAR);
  const small = windows.find(({ windowBytes }) => windowBytes === NEAR);
  large?.release();
  large?.release();
  assert.ok(small !== undefined);
  run(small, { now: 10_000, ms: 3000 }, link);
  assert.ok(small.windowBytes > NEAR);
  for (const window of windows) window.release();
  assert.equal(pool.taken, 0);
});

test("CreditWindow: where the pool is short, a window that its reader does not need any more becomes smaller", () => {
  const pool = new WindowPool(16 * MIB, new FakeClock());
  const window = new CreditWindow(pool);
  run(window, { now: 0, ms: 3000 }, { roundTripMs: 100, bytesPerMs: 100_000 });
  assert.equal(window.windowBytes, MAX);
  run(window, { now: 10_000, ms: 5000 }, { roundTripMs: 100, bytesPerMs: 8000 });
  assert.ok(window.windowBytes <= 13 * MIB && !pool.isShort, `${window.windowBytes}`);
  assert.equal(pool.taken, window.windowBytes - NEAR);
});

test("WindowPool: who is idle for half a minute loses its part to one that needs it, and gets it back if there is room, else its window shrinks", async () => {
  const clock = new FakeClock();
  const pool = new WindowPool(16 * MIB, clock);
  const link: Link = { roundTripMs: 100, bytesPerMs: 100_000 };
  const [idle, busy] = [new CreditWindow(pool), new CreditWindow(pool)];
  run(idle, { now: 0, ms: 3000 }, link);
  run(busy, { now: 3000, ms: 3000 }, link);
  assert.deepEqual([idle.windowBytes, busy.windowBytes], [MAX, 2 * MIB]);
  await clock.advance(IDLE_MS);
  run(busy, { now: 40_000, ms: 3000 }, link);
  assert.equal(busy.windowBytes, MAX);
  assert.equal(pool.taken, 15 * MIB);
  // Its peer still has the credit. What comes by it is not granted again.
  run(idle, { now: 50_000, ms: 3000 }, link);
  assert.ok(idle.windowBytes <= 2 * MIB, `${idle.windowBytes}`);
  assert.ok(pool.taken <= 16 * MIB);
});

test("CreditWindow: whatever the reader does, a peer that keeps to its credit is within it, and nothing of the pool is lost", async () => {
  const step = fc.record({
    part: fc.double({ min: 0, max: 1, noNaN: true }),
    readPart: fc.double({ min: 0, max: 1, noNaN: true }),
    waitMs: fc.nat(300),
    roundTripMs: fc.constantFrom(undefined, 0.1, 5, 50, 300),
    isOver: fc.boolean(),
    idle: fc.boolean(),
    of: fc.nat(2),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 200 }), async (steps) => {
      const clock = new FakeClock();
      const pool = new WindowPool(4 * MIB, clock);
      const sides = [0, 1, 2].map(() => ({ window: new CreditWindow(pool), credit: 256 * KIB, held: 0 }));
      for (const { part, readPart, waitMs, roundTripMs, isOver, idle, of } of steps) {
        const side = sides[of];
        if (side === undefined) continue;
        const sent = Math.floor(part * side.credit);
        assert.ok(sent <= side.window.creditOf(side.held), "a peer was refused that had the credit");
        side.credit -= sent;
        side.held += sent;
        await clock.advance(idle ? IDLE_MS : waitMs);
        const read = Math.floor(readPart * side.held);
        side.held -= read;
        const moment = { heldBytes: side.held, isOver, roundTripMs, now: () => clock.monotonic() };
        side.credit += side.window.taken(read, moment);
        assert.equal(side.credit, side.window.creditOf(side.held));
        assert.ok(side.window.windowBytes >= 256 * KIB && side.window.windowBytes <= MAX);
        assert.ok(pool.taken >= 0 && pool.taken <= 4 * MIB);
      }
      for (const { window } of sides) window.release();
      assert.equal(pool.taken, 0);
    }),
    { numRuns: 100 },
  );
});
