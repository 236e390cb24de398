import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import type { NftWriters } from "#kernel/nft-elements";
import {
  CALM_MS,
  ConflictBackoff,
  MAX_PAUSE_MS,
  MIN_DISTURBANCES,
  MIN_PAUSE_MS,
  WINDOW_MS,
} from "./conflict-backoff.ts";
import { DriftWatch, type DriftWatchDeps, POLL_MS, type WatchedFamily } from "./drift-watch.ts";

/** A watch over two families; `disturb` gives the changes after each repair. */
function setUp(t: { after: (fn: () => Promise<void>) => void }, changes: (family: IpFamily) => number) {
  const clock = new FakeClock();
  const said: Record<string, unknown>[] = [];
  const log = createLogger({ name: "t", write: (line) => void said.push(JSON.parse(line)) });
  const state = { hasForeignChanges: true, repairs: 0, contested: [] as boolean[], isBroken: false };
  const generations = {
    get hasForeignChanges() {
      return state.hasForeignChanges;
    },
    settle: () => undefined,
  };
  const families = ([4, 6] as const).map((family) => ({
    family,
    isBusy: false,
    plane: { isDamaged: () => state.isBroken, isBroken: () => state.isBroken },
    repair: (done?: (count: number) => void) => {
      if (family === 4) state.repairs += 1;
      done?.(changes(family));
    },
  }));
  let open = 0;
  const openWriters = (): NftWriters => {
    open += 1;
    return {
      take: () => [{ pid: 4242, name: "flusher" }],
      [Symbol.dispose]: () => {
        open -= 1;
      },
    };
  };
  const onContested = (isOn: boolean): unknown => state.contested.push(isOn);
  const watch = new DriftWatch({ generations, families, log, clock, onContested, openWriters });
  const stop = new AbortController();
  const running = watch.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  const lines = (text: string): number => said.filter(({ msg }) => String(msg).includes(text)).length;
  return { clock, state, watch, lines, said, open: () => open };
}

test("DriftWatch: tables that a program flushes every 8 s are repaired within a second each time, and it is named once", async (t) => {
  const { clock, state, said, open } = setUp(t, () => 5);
  state.hasForeignChanges = false;
  await clock.advance(POLL_MS);
  assert.equal(open(), 0, "writers are followed only during disturbances");
  for (let flush = 0; flush < 60; flush += 1) {
    const { repairs } = state;
    Object.assign(state, { hasForeignChanges: true, isBroken: true });
    await clock.advance(2 * POLL_MS);
    assert.ok(state.repairs > repairs, `flush ${flush} is repaired`);
    Object.assign(state, { hasForeignChanges: false, isBroken: false });
    await clock.advance(8000 - 2 * POLL_MS);
  }
  const told = said.filter(({ msg }) => String(msg).includes("another program repeatedly changes"));
  assert.deepEqual(
    told.map(({ seen }) => seen),
    ["flusher (4242)"],
  );
  await clock.advance(CALM_MS + POLL_MS);
  assert.equal(open(), 0);
});

test("DriftWatch: a program that keeps changing our tables is logged once, and repairs slow down", async (t) => {
  const { clock, state, lines } = setUp(t, () => 3);
  await clock.advance((MIN_DISTURBANCES - 1) * POLL_MS);
  assert.deepEqual([state.repairs, state.contested], [MIN_DISTURBANCES - 1, []]);
  assert.equal(lines("another program changed the proxy's nftables table"), 2 * (MIN_DISTURBANCES - 1));
  await clock.advance(10 * 60_000);
  assert.deepEqual(state.contested, [true]);
  assert.equal(lines("another program repeatedly changes"), 1);
  assert.ok(state.repairs < MIN_DISTURBANCES + 30, `${state.repairs} repairs in ten minutes`);
  assert.equal(lines("another program changed the proxy's nftables table"), 2 * (MIN_DISTURBANCES - 1));
});

test("DriftWatch: a conflict ends when nothing has been changed for a while, and that is logged", async (t) => {
  const { clock, state, lines } = setUp(t, () => 1);
  await clock.advance(60_000);
  assert.deepEqual(state.contested, [true]);
  state.hasForeignChanges = false;
  const { repairs } = state;
  await clock.advance(CALM_MS + MAX_PAUSE_MS);
  assert.deepEqual([state.contested, state.repairs], [[true, false], repairs]);
  assert.equal(lines("no other program changes the proxy's nftables"), 1);
  state.hasForeignChanges = true;
  await clock.advance(POLL_MS);
  assert.equal(state.repairs, repairs + 1);
});

test("DriftWatch: another program that keeps changing its own tables is no conflict, and our table is listed less and less often", async (t) => {
  const { clock, state, lines } = setUp(t, () => 0);
  await clock.advance(10 * 60_000);
  assert.deepEqual([state.contested, lines("")], [[], 0]);
  assert.ok(state.repairs < 20, `${state.repairs} looks`);
});

test("DriftWatch: a change to one family alone is repaired at the next poll", async (t) => {
  for (const disturbed of [4, 6]) {
    let left = 1;
    const { clock, state } = setUp(t, (family) => (family === disturbed && left > 0 ? left-- : 0));
    await clock.advance(POLL_MS);
    assert.equal(state.repairs, 1);
    await clock.advance(POLL_MS);
    assert.equal(state.repairs, 2, `after a change of family ${disturbed}`);
  }
});

/** Two families whose tables others change: elements, which only a listing finds, or chains. */
class TwoTables {
  readonly clock = new FakeClock();
  readonly repaired: IpFamily[] = [];
  readonly elements = new Map<IpFamily, number>();
  readonly damaged = new Set<IpFamily>();
  #isForeign = false;

  readonly generations: DriftWatchDeps["generations"];
  readonly families: readonly WatchedFamily[];

  constructor() {
    const isForeign = (): boolean => this.#isForeign;
    this.generations = {
      get hasForeignChanges() {
        return isForeign();
      },
      settle: () => {
        this.#isForeign = false;
      },
    };
    this.families = ([4, 6] as const).map((family) => ({
      family,
      isBusy: false,
      plane: { isDamaged: () => this.damaged.has(family), isBroken: () => this.damaged.has(family) },
      repair: (done) => {
        this.repaired.push(family);
        this.damaged.delete(family);
        const changes = this.elements.get(family) ?? 0;
        this.elements.delete(family);
        done?.(changes);
      },
    }));
  }

  change(family: IpFamily, what: "elements" | "chains"): void {
    this.#isForeign = true;
    if (what === "elements") this.elements.set(family, 1);
    else this.damaged.add(family);
  }

  get isSound(): boolean {
    return this.elements.size === 0 && this.damaged.size === 0;
  }
}

test("DriftWatch: a change of elements that is not looked for yet is not forgotten when the other family's chains are repaired", async (t) => {
  for (const [first, second] of [
    [6, 4],
    [4, 6],
  ] as const) {
    const tables = new TwoTables();
    const { clock, generations, families } = tables;
    const log = createLogger({ name: "t", write: () => undefined });
    const watch = new DriftWatch({ generations, families, clock, log });
    const stop = new AbortController();
    const running = watch.run({ signal: stop.signal });
    t.after(async () => {
      stop.abort();
      await running;
    });
    // Other programs change tables of their own, until ours are listed once a minute.
    for (let at = 0; at < 600; at += 1) {
      generations.settle();
      tables.change(4, "elements");
      tables.elements.clear();
      await clock.advance(POLL_MS);
    }
    tables.change(first, "elements");
    await clock.advance(POLL_MS);
    assert.ok(!tables.isSound, "it is not looked for yet");
    tables.change(second, "chains");
    await clock.advance(POLL_MS);
    assert.equal(tables.damaged.size, 0);
    await clock.advance(60_000);
    assert.ok(tables.isSound, `elements of family ${first} are repaired`);
    const { length } = tables.repaired;
    await clock.advance(600_000);
    assert.equal(tables.repaired.length, length, "nothing is compared again without a reason");
  }
});

test("DriftWatch: polls that the kernel does not answer are logged once and made again, and the repair follows", async (t) => {
  const { clock, state, lines } = setUp(t, () => 1);
  for (const field of ["hasForeignChanges", "isBroken"] as const) {
    const { repairs } = state;
    const told = lines("cannot look for changes");
    Object.assign(state, { hasForeignChanges: true, isBroken: true });
    Object.defineProperty(state, field, {
      configurable: true,
      get: () => {
        throw new KernelError("interrupted", "cannot list: the list changed while it was read, 6 times");
      },
    });
    await clock.advance(10 * POLL_MS);
    assert.equal(lines("cannot look for changes"), told + 1, field);
    assert.equal(state.repairs, repairs, field);
    Object.defineProperty(state, field, { configurable: true, writable: true, value: true });
    await clock.advance(POLL_MS);
    assert.equal(state.repairs, repairs + 1, field);
  }
});

test("DriftWatch: a bug in a poll ends it", async () => {
  const clock = new FakeClock();
  const generations = {
    get hasForeignChanges(): boolean {
      throw new TypeError("a bug");
    },
    settle: () => undefined,
  };
  const log = createLogger({ name: "t", write: () => undefined });
  const watch = new DriftWatch({ generations, families: [], log, clock });
  const running = assert.rejects(() => watch.run({ signal: new AbortController().signal }), TypeError);
  await clock.advance(POLL_MS);
  await running;
});

test("ConflictBackoff: the same number of disturbances over a longer time is no conflict", async () => {
  const clock = new FakeClock();
  const conflict = new ConflictBackoff(clock);
  for (let at = 0; at < 4 * MIN_DISTURBANCES; at += 1) {
    conflict.disturbed();
    await clock.advance(WINDOW_MS / (MIN_DISTURBANCES - 1));
  }
  assert.equal(conflict.isOn, false);
});

test("DriftWatch: a transaction that is refused, because the kernel holds something else, is a disturbance too", (t) => {
  const { state, watch } = setUp(t, () => 0);
  for (let at = 0; at < MIN_DISTURBANCES; at += 1) watch.refused();
  assert.deepEqual(state.contested, [true]);
});

test("ConflictBackoff: its pause doubles to the longest one", () => {
  const conflict = new ConflictBackoff(new FakeClock());
  const pauses = Array.from({ length: MIN_DISTURBANCES + 8 }, () => {
    conflict.disturbed();
    return conflict.pauseMs;
  });
  assert.deepEqual(pauses.slice(0, MIN_DISTURBANCES), [...new Array(MIN_DISTURBANCES - 1).fill(0), MIN_PAUSE_MS]);
  assert.deepEqual(pauses.slice(-2), [MAX_PAUSE_MS, MAX_PAUSE_MS]);
});
