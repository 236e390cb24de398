import assert from "node:assert/strict";
import { test } from "node:test";
import { Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Health } from "#base/health";
import { switchPart, switchWatchPart, UsedSwitches } from "./node-switches.ts";

class SwitchGone extends ExpectedError<"gone"> {
  override readonly name = "SwitchGone";
}

test("switch: ports of each switch that pods need are plugged again at the start and after each mark; what is needed then counts as known", async () => {
  let needed: readonly string[] = ["/a.sock"];
  const used = new UsedSwitches(() => new Set(needed));
  const dirty = new Dirty();
  const health = new Health();
  const repairs: string[] = [];
  const counts: number[] = [];
  const passed = Promise.withResolvers<void>();
  const part = switchPart({
    network: {
      repair: async (ovsdb) => {
        repairs.push(ovsdb);
        return 2;
      },
    },
    used,
    dirty,
    health: health.part("switch"),
    onReplugged: (ports) => {
      counts.push(ports);
      if (counts.length === 1) {
        assert.equal(used.hasChanged, false);
        needed = ["/a.sock", "/b.sock"];
        assert.equal(used.hasChanged, true);
        dirty.mark("test");
      } else passed.resolve();
    },
  });
  const stop = new AbortController();
  const running = part.run({ signal: stop.signal });
  await passed.promise;
  stop.abort();
  await running;
  assert.deepEqual(repairs, ["/a.sock", "/a.sock", "/b.sock"]);
  assert.deepEqual(counts, [2, 4]);
});

test("switch-watch: a switch that is gone is watched again after a pause, and ports are compared then; a bug ends the part", async () => {
  const clock = new FakeClock();
  const dirty = new Dirty(clock);
  const outcomes = [new SwitchGone("gone", "no switch"), new TypeError("a bug")];
  const startedAt: number[] = [];
  const watch = async (): Promise<never> => {
    startedAt.push(clock.monotonic());
    throw outcomes[startedAt.length - 1];
  };
  const part = switchWatchPart({ watch, dirty, clock });
  const { signal } = new AbortController();
  const ended = assert.rejects(part.run({ signal }), TypeError);
  await clock.advance(0);
  assert.equal(startedAt.length, 1);
  await dirty.wait({ atMostMs: 60_000, signal });
  await clock.advance(400);
  await ended;
  assert.equal(startedAt.length, 2);
});
