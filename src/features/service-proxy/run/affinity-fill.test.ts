import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { AffinityFill, COUNT_MS, CROWDED_COUNT_MS } from "./affinity-fill.ts";

const MAX = 262_144;

function setUp(t: { after: (end: () => Promise<void>) => void }) {
  const clock = new FakeClock();
  const said: Record<string, unknown>[] = [];
  const log = createLogger({ name: "t", write: (line) => void said.push(JSON.parse(line)) });
  const state = {
    trimmed: [] as { service: string; removed: number }[],
    entries: 0 as number | undefined,
    isBusy: false,
    isFailing: false,
    lists: 0,
    trims: 0,
  };
  const trimmed: [number, number][] = [];
  const counted: [number, number][] = [];
  const families = ([4, 6] as const).map((family) => ({
    family,
    get isBusy() {
      return state.isBusy;
    },
    plane: {
      countAffinity: async () => {
        state.lists += 1;
        if (state.isFailing) throw new KernelError("failed", "cannot list: no buffer space", { errno: "ENOBUFS" });
        return family === 4 ? state.entries : 0;
      },
      affinityEntries: MAX,
      trimAffinity: async () => {
        state.trims += 1;
        return state.trimmed;
      },
    },
  }));
  const fill = new AffinityFill({
    families,
    onCount: (family, entries) => counted.push([family, entries]),
    onTrim: (family, clients) => trimmed.push([family, clients]),
    log,
    clock,
  });
  const stop = new AbortController();
  const running = fill.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  const warnings = (): Record<string, unknown>[] => said.filter(({ level }) => level === "warn");
  return { clock, state, counted, trimmed, warnings };
}

test("AffinityFill: the entries of each family are counted each five seconds, not during a sync, and unknown ones not at all", async (t) => {
  const { clock, state, counted } = setUp(t);
  state.entries = 7;
  await clock.advance(COUNT_MS);
  assert.deepEqual(counted.splice(0).slice(-2), [
    [4, 7],
    [6, 0],
  ]);
  state.entries = undefined;
  await clock.advance(COUNT_MS);
  assert.deepEqual(counted.splice(0), [[6, 0]]);
  const { lists } = state;
  state.isBusy = true;
  await clock.advance(COUNT_MS);
  assert.deepEqual([counted, state.lists], [[], lists]);
});

test("AffinityFill: a map that is nearly full is logged once, until it has been emptier", async (t) => {
  const { clock, state, warnings } = setUp(t);
  const counts = [0.5, 0.91, 0.99, 1, 0.85, 0.95].map((share) => Math.floor(share * MAX));
  for (const entries of counts) {
    state.entries = entries;
    await clock.advance(COUNT_MS);
  }
  assert.equal(warnings().length, 1);
  assert.deepEqual(
    [warnings()[0]?.["family"], warnings()[0]?.["entries"], warnings()[0]?.["max"]],
    [4, counts[1], MAX],
  );
  state.entries = 0;
  await clock.advance(COUNT_MS);
  state.entries = MAX;
  await clock.advance(COUNT_MS);
  assert.equal(warnings().length, 2);
});

test("AffinityFill: a count that the kernel does not answer keeps the value, and is made again", async (t) => {
  const { clock, state, counted } = setUp(t);
  state.isFailing = true;
  await clock.advance(2 * COUNT_MS);
  counted.length = 0;
  await clock.advance(2 * COUNT_MS);
  assert.deepEqual(counted, []);
  state.isFailing = false;
  await clock.advance(COUNT_MS);
  assert.equal(counted.length, 2);
});

test("AffinityFill: while a map is above a half Services lose what is above their share each second, and each is logged once", async (t) => {
  const { clock, state, trimmed, warnings } = setUp(t);
  state.entries = MAX / 2;
  await clock.advance(2 * COUNT_MS);
  assert.equal(state.trims, 0);
  state.entries = MAX / 2 + 1;
  state.trimmed = [{ service: "ns/flooded", removed: 7 }];
  await clock.advance(COUNT_MS);
  const { trims } = state;
  for (let second = 0; second < 3; second += 1) await clock.advance(CROWDED_COUNT_MS);
  assert.equal(state.trims, trims + 3);
  assert.deepEqual(trimmed.at(-1), [4, 7]);
  assert.deepEqual(
    warnings().map(({ service, family }) => [service, family]),
    [["ns/flooded", 4]],
  );
  state.entries = 0;
  await clock.advance(COUNT_MS);
  const after = state.trims;
  await clock.advance(2 * COUNT_MS);
  assert.equal(state.trims, after);
});
