import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { WindowTuner } from "./window-tuner.ts";

const FIRST = 512 * 1024;
const MAX = 16 * 1024 * 1024;

interface Link {
  /** Round trip without load, in milliseconds. */
  readonly roundTripMs: number;
  /** The rate of the link or the reader, in bytes per millisecond. */
  readonly bytesPerMs: number;
}

/** A peer that always has as much under way as the window allows. Returns the window after `seconds`. */
function windowAfter(seconds: number, { roundTripMs, bytesPerMs }: Link): number {
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX });
  let window = FIRST;
  let received = 0;
  let answerAt = Number.POSITIVE_INFINITY;
  for (let now = 0; now < seconds * 1000; now += 0.1) {
    // What is under way above the link's own product waits in front of the bottleneck, and the answer to a PING behind it.
    const waitingMs = Math.max(0, window / bytesPerMs - roundTripMs);
    received += Math.min(bytesPerMs, window / roundTripMs) * 0.1;
    if (now >= answerAt) {
      answerAt = Number.POSITIVE_INFINITY;
      window = tuner.answered(received, now) ?? window;
    }
    if (!tuner.isDue(received)) continue;
    tuner.sent(received, now);
    answerAt = now + roundTripMs + (received < FIRST ? 0 : waitingMs);
  }
  return window;
}

test("WindowTuner: on a near link the window stays as it is, however fast its reader is", () => {
  for (const bytesPerMs of [20_000, 100_000, 400_000]) {
    assert.equal(windowAfter(5, { roundTripMs: 0.5, bytesPerMs }), FIRST, `${bytesPerMs}`);
  }
});

test("WindowTuner: on a far and fast link the window grows until it limits nothing", () => {
  const cases: readonly Link[] = [
    { roundTripMs: 10, bytesPerMs: 200_000 },
    { roundTripMs: 40, bytesPerMs: 100_000 },
    { roundTripMs: 80, bytesPerMs: 100_000 },
  ];
  for (const link of cases) {
    const window = windowAfter(10, link);
    const product = link.roundTripMs * link.bytesPerMs;
    assert.ok(window >= product && window <= 4 * product, `${JSON.stringify(link)}: ${window}`);
  }
});

/**
 * A peer as {@link windowAfter} has, whose credit comes back in halves of a window. Reads are no divisors of a half, so that what is over keeps
 * almost a half on this side. Round trips take up to `1 + noise` times as long as the shortest. Returns the window after `seconds`.
 */
function windowOfHalves(seconds: number, { roundTripMs, bytesPerMs }: Link, noise: number): number {
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX });
  const chunk = 16_200;
  let [window, received, credit, seed] = [FIRST, 0, 0, 1];
  let answerAt = Number.POSITIVE_INFINITY;
  let arrivals = [{ at: roundTripMs, bytes: FIRST }];
  const oneTrip = (): number => {
    seed = (seed * 48_271) % 2_147_483_647;
    return roundTripMs * (1 + (noise * seed) / 2_147_483_647);
  };
  const stepMs = chunk / bytesPerMs;
  for (let now = 0; now < seconds * 1000; now += stepMs) {
    if (now >= answerAt) {
      answerAt = Number.POSITIVE_INFINITY;
      const larger = tuner.answered(received, now);
      if (larger !== undefined) arrivals.push({ at: now + oneTrip(), bytes: larger - window });
      window = larger ?? window;
    }
    const next = arrivals.find(({ at, bytes }) => at <= now && bytes > 0);
    if (next === undefined) continue;
    next.bytes -= chunk;
    received += chunk;
    credit += chunk;
    if (2 * credit >= window) {
      arrivals = [...arrivals.filter(({ bytes }) => bytes > 0), { at: now + oneTrip(), bytes: credit }];
      credit = 0;
    }
    if (!tuner.isDue(received)) continue;
    tuner.sent(received, now);
    answerAt = now + oneTrip();
  }
  return window;
}

test("WindowTuner: credit in halves of a window and round trips that differ do not keep the window of a far link small", () => {
  for (const roundTripMs of [20, 50]) {
    for (const noise of [0, 0.1, 0.4]) {
      const link: Link = { roundTripMs, bytesPerMs: 100_000 };
      const window = windowOfHalves(5, link, noise);
      assert.ok(window >= roundTripMs * link.bytesPerMs, `${roundTripMs} ms, ${noise}: ${window}`);
    }
  }
});

test("WindowTuner: a far but slow link keeps a small window", () => {
  assert.equal(windowAfter(10, { roundTripMs: 100, bytesPerMs: 1000 }), FIRST);
});

test("WindowTuner: between busy processes, whose answers are sometimes quick and mostly late, the window stays", () => {
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX });
  let [received, now] = [0, 0];
  for (let sample = 0; sample < 500; sample += 1) {
    tuner.sent(received, now);
    // 0.5 to 20 ms, at 100 MB/s.
    const tookMs = 0.5 + ((sample * 7919) % 40) / 2;
    received += tookMs * 100_000;
    now += tookMs;
    assert.equal(tuner.answered(received, now), undefined);
    received += FIRST;
    now += FIRST / 100_000;
  }
});

test("WindowTuner: one PING at a time, and none once the window is as large as it may be", () => {
  const tuner = new WindowTuner({ firstBytes: 100, maxBytes: 200 });
  assert.equal(tuner.isDue(1), true);
  tuner.sent(1, 0);
  assert.equal(tuner.isDue(1000), false);
  assert.equal(tuner.answered(1, 4), undefined);
  assert.equal(tuner.answered(1, 4), undefined, "an answer that was not asked for");
  assert.equal(tuner.isDue(50), false);
  for (let sample = 1; sample <= 5; sample += 1) {
    const [bytes, now] = [sample * 100 + 1, sample * 20];
    assert.equal(tuner.isDue(bytes), true);
    tuner.sent(bytes, now);
    assert.equal(tuner.answered(bytes + 60, now + 4), sample === 5 ? 200 : undefined);
  }
  assert.equal(tuner.isDue(10_000), false);
});

/** Samples of a used window, of which one in `oneIn` takes `times` as long. Returns true if the window has grown. */
function growsWith(
  { oneIn, times }: { readonly oneIn: number; readonly times: number },
  { roundTripMs }: Pick<Link, "roundTripMs">,
): boolean {
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX });
  let [received, now] = [0, 0];
  for (let sample = 0; sample < 200; sample += 1) {
    tuner.sent(received, now);
    received += 0.6 * FIRST;
    now += sample % oneIn === 1 ? roundTripMs * times : roundTripMs;
    if (tuner.answered(received, now) !== undefined) return true;
    received += FIRST;
    now += roundTripMs;
  }
  return false;
}

test("WindowTuner: late answers now and then do not keep a window small, but mostly late ones do", () => {
  const near = { roundTripMs: 4 };
  assert.equal(growsWith({ oneIn: 4, times: 3 }, near), true);
  assert.equal(growsWith({ oneIn: 2, times: 3 }, near), false);
});

test("WindowTuner: on a far link one sample is enough, also between lost packets: each costs a round trip", () => {
  for (const roundTripMs of [10, 200]) assert.equal(growsWith({ oneIn: 2, times: 3 }, { roundTripMs }), true);
});

test("WindowTuner: on a far and fast link the window is as large as it may be after a dozen round trips", () => {
  for (const roundTripMs of [10, 50, 200]) {
    assert.equal(windowAfter((12 * roundTripMs) / 1000, { roundTripMs, bytesPerMs: 100_000_000 / roundTripMs }), MAX);
  }
});

test("WindowTuner: on a far link the window grows too while its worth comes faster each time, behind what waits at the sender, and no more when the rate is found", () => {
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX });
  let [received, now, window] = [0, 0, FIRST];
  /** A window's worth comes at this rate, which takes longer than two round trips of 50 ms. */
  const sample = (bytesPerMs: number): number | undefined => {
    tuner.sent(received, now);
    received += window;
    now += window / bytesPerMs;
    const grown = tuner.answered(received, now);
    window = grown ?? window;
    received += window;
    return grown;
  };
  tuner.sent(0, 0);
  now += 50;
  assert.equal(tuner.answered(1, now), undefined);
  assert.equal(sample(2000), undefined, "nothing to compare with");
  assert.equal(sample(4000), 2 * FIRST);
  assert.equal(sample(8000), 4 * FIRST);
  assert.equal(sample(8000), undefined);
  assert.equal(sample(8500), undefined);
});

test("WindowTuner: a window that there is no room for stays, and grows once there is", () => {
  let hasRoom = false;
  const asked: number[] = [];
  const mayGrow = (more: number, to: number): boolean => {
    asked.push(more, to);
    return hasRoom;
  };
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX, mayGrow });
  let [received, now] = [0, 0];
  const sample = (): number | undefined => {
    tuner.sent(received, now);
    received += FIRST / 2;
    now += 50;
    const grown = tuner.answered(received, now);
    received += FIRST;
    return grown;
  };
  assert.equal(sample(), undefined);
  assert.deepEqual(asked, [FIRST, 2 * FIRST]);
  assert.equal(tuner.roundTripMs, 50);
  hasRoom = true;
  assert.equal(sample(), 2 * FIRST);
});

/**
 * A server that counts PINGs as grpc-go does (internal/transport/http2_server.go, handlePing): one that comes within MinTime, here always, is a
 * strike, unless HEADERS or DATA were sent since the last one; then the strikes are forgotten. `bursts`: bytes that the server sends, as far
 * as the window allows, and how long it then waits. Returns the most strikes.
 */
function strikesOf(bursts: readonly (readonly [kib: number, waitMs: number])[], roundTripMs: number): number {
  const tuner = new WindowTuner({ firstBytes: FIRST, maxBytes: MAX });
  const events: { readonly at: number; readonly run: (now: number) => void }[] = [];
  const later = (now: number, run: (now: number) => void): void => void events.push({ at: now + roundTripMs / 2, run });
  let [window, credit, received, owed, strikes, most, hasSent] = [FIRST, FIRST, 0, 0, 0, 0, true];
  const onPing = (now: number): void => {
    strikes = hasSent ? 0 : strikes + 1;
    hasSent = false;
    most = Math.max(most, strikes);
    later(now, (at) => {
      const larger = tuner.answered(received, at);
      if (larger === undefined) return;
      const more = larger - window;
      window = larger;
      later(at, () => {
        credit += more;
      });
    });
  };
  const onData = (now: number, bytes: number): void => {
    received += bytes;
    owed += bytes;
    if (2 * owed >= window) {
      const back = owed;
      owed = 0;
      later(now, () => {
        credit += back;
      });
    }
    if (!tuner.isDue(received)) return;
    tuner.sent(received, now);
    later(now, onPing);
  };
  const advance = (until: number): void => {
    for (;;) {
      const at = events.reduce((first, one, index) => (one.at < (events[first]?.at ?? until) ? index : first), -1);
      const next = events[at];
      if (next === undefined || next.at > until) return;
      events.splice(at, 1);
      next.run(next.at);
    }
  };
  let now = 0;
  for (const [kib, waitMs] of bursts) {
    for (let left = Math.min(kib * 1024, credit); left > 0; left -= 16_384) {
      const bytes = Math.min(16_384, left);
      credit -= bytes;
      hasSent = true;
      later(now, (at) => onData(at, bytes));
    }
    now += waitMs;
    advance(now);
  }
  advance(Number.POSITIVE_INFINITY);
  return most;
}

test("WindowTuner: whatever a server of grpc-go sends, it counts no PING against the peer", () => {
  const burst = fc.tuple(fc.constantFrom(0, 1, 16, 300, 520, 2000, 9000), fc.constantFrom(0, 1, 5, 26, 60, 200));
  fc.assert(
    fc.property(fc.array(burst, { maxLength: 60 }), fc.constantFrom(0.1, 10, 50), (bursts, roundTripMs) => {
      assert.equal(strikesOf(bursts, roundTripMs), 0);
    }),
    { numRuns: 300 },
  );
});
