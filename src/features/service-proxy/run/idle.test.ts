import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { FakeConntrack } from "#kernel/conntrack";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { until } from "#test/lab";
import { DataPlane, GenerationTracker, type SyncReport } from "../dataplane/index.ts";
import { NODE, ruleOptions } from "../testing/fixture.ts";
import { Tracker } from "../track/index.ts";
import { POLL_MS } from "./drift-watch.ts";
import { DriftWatch, FamilyProxy } from "./index.ts";

const REPORT: SyncReport = { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };
const MINUTE_MS = 60_000;

/** Counts calls by their names. */
function counted<T extends object>(target: T, calls: Map<string, number>): T {
  return new Proxy(target, {
    get: (object, key) => {
      const value: unknown = Reflect.get(object, key);
      if (typeof value !== "function") return value;
      return (...args: unknown[]): unknown => {
        calls.set(String(key), (calls.get(String(key)) ?? 0) + 1);
        return value.apply(object, args);
      };
    },
  });
}

/** Known to hold what is wanted. */
class SoundPlane extends DataPlane {
  syncs = 0;

  override async sync(): Promise<SyncReport> {
    this.syncs += 1;
    return REPORT;
  }
}

test("idle: in a minute without a change one number is read from the kernel twice a second, nothing is listed, and no other timer runs", async () => {
  const fake = new FakeClock();
  const timers = new Map<string, number>();
  const asked = new Map<string, number>();
  const clock: Clock = counted(fake, timers);
  const elements = counted(new FakeNftElements(), asked);
  const generations = new GenerationTracker(elements);
  const planes: SoundPlane[] = [];
  const families = ([4, 6] as const).map((family) => {
    const plane = new SoundPlane(
      { nft: counted(new FakeNft(), asked), elements, generations, clock, log: nullLogger },
      { ...ruleOptions(family), tableName: "kube-proxy" },
    );
    planes.push(plane);
    const tracker = new Tracker(family, { node: NODE, nodeIPs: [] });
    const conntrack = counted(new FakeConntrack(), asked);
    return new FamilyProxy({ tracker, plane, conntrack, clock, log: nullLogger }, { minSyncMs: 1000, syncMs: 30_000 });
  });
  const stop = new AbortController();
  const drift = new DriftWatch({ generations, families, clock, log: nullLogger });
  const running = [drift, ...families].map((one) => one.run({ signal: stop.signal }));
  for (const family of families) family.open();
  await until("both are synced", async () => {
    await fake.advance(100);
    return planes.every(({ syncs }) => syncs > 0);
  });
  await fake.advance(5000);
  timers.clear();
  asked.clear();
  const syncs = planes.map((plane) => plane.syncs);
  await fake.advance(MINUTE_MS);
  const looks = MINUTE_MS / POLL_MS;
  assert.deepEqual(
    planes.map((plane) => plane.syncs),
    syncs,
  );
  assert.deepEqual([...asked], [["generation", looks]]);
  assert.equal(timers.get("after"), looks);
  stop.abort();
  await fake.advance(POLL_MS);
  await Promise.all(running);
});
