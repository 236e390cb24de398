/** Waits follow the time that passes, not the time of day (docs/spec/service-proxy.md#3.2: R7). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { FakeNft } from "#kernel/nft";
import { ElementBatch, FakeNftElements } from "#kernel/nft-elements";
import { DataPlane, GenerationTracker, type SyncReport } from "../dataplane/index.ts";
import { NODE, ruleOptions } from "../testing/fixture.ts";
import { Tracker } from "../track/index.ts";
import { DriftWatch, FamilyProxy } from "./index.ts";

const DAY_MS = 86_400_000;
const JUMPS = [-365 * DAY_MS, 3_600_000, 365 * DAY_MS] as const;

/** Moves on in steps, the time of day leaping about between them. */
async function advance(clock: FakeClock, ms: number): Promise<void> {
  const steps = 20;
  for (let step = 0; step < steps; step += 1) {
    clock.jumpWall(JUMPS[step % JUMPS.length] ?? 0);
    await clock.advance(ms / steps);
  }
}

/** A data plane that compares everything and finds no difference. */
class IdlePlane extends DataPlane {
  override async sync(): Promise<SyncReport> {
    return { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };
  }
}

test("DriftWatch: polls and pauses do not depend on the wall clock", async () => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const nft = new FakeNft();
  const generations = new GenerationTracker(elements);
  const plane = new IdlePlane(
    { nft, elements, generations, clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const syncs: number[] = [];
  const observer = { synced: () => syncs.push(clock.monotonic()) };
  const proxy = new FamilyProxy({ tracker, plane, observer, clock, log: nullLogger }, { minSyncMs: 0, syncMs: 1000 });
  const watch = new DriftWatch({ generations, families: [proxy], clock, log: nullLogger });
  const stop = new AbortController();
  const running = Promise.all([proxy.run({ signal: stop.signal }), watch.run({ signal: stop.signal })]);
  proxy.open();
  await advance(clock, 10_000);
  assert.equal(syncs.length, 1, "nothing changed");
  const others = { family: "ip", name: "somebody" } as const;
  elements.addSet(others, "s");
  for (const expected of [10_500, 11_500, 13_500, 17_500]) {
    const before: number = syncs.length;
    await elements.commit(new ElementBatch(others, { record: true }).add("s", String(expected)));
    while (clock.monotonic() < expected) await advance(clock, 500);
    assert.deepEqual(syncs.slice(before), [expected], "each look that finds nothing makes the pause twice as long");
  }
  stop.abort();
  await running;
});
