import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { createLogger, nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { until } from "#test/lab";
import { DataPlane, GenerationTracker, type SyncReport } from "../dataplane/index.ts";
import { MAX_TIMEOUTS } from "../plan/index.ts";
import { NODE, ruleOptions, servicePort } from "../testing/fixture.ts";
import { MAX_ELEMENTS, type ServiceSteps, Tracker } from "../track/index.ts";
import { FamilyProxy } from "./index.ts";

const REPORT: SyncReport = { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };

/** A plane whose first syncs the kernel refuses. */
class RefusingPlane extends DataPlane {
  refusals = 2;

  override async sync(): Promise<SyncReport> {
    this.refusals -= 1;
    if (this.refusals >= 0) throw new KernelError("busy", "cannot write elements: the table is busy");
    return REPORT;
  }
}

test("FamilyProxy: a change that waits through failed syncs is measured once, from its trigger time", async () => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const plane = new RefusingPlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const measured: (readonly number[])[] = [];
  let failures = 0;
  const observer = {
    synced: (_family: number, report: { readonly triggeredAt: readonly number[] }) => measured.push(report.triggeredAt),
    failed: () => {
      failures += 1;
    },
  };
  const proxy = new FamilyProxy({ tracker, plane, observer, clock, log: nullLogger }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  tracker.setSlice("ns/s", {
    metadata: { name: "s", namespace: "ns", uid: "1", resourceVersion: "1" },
    service: "ns/svc",
    family: 4,
    ports: [],
    endpoints: [],
    triggeredAt: 1234,
  });
  proxy.open();
  for (const count of [1, 2]) {
    await until(`sync ${count} failed`, () => {
      clock.advance(100);
      return failures >= count;
    });
  }
  await until("a sync succeeded", () => {
    clock.advance(100);
    return measured.length > 0;
  });
  proxy.request();
  await until("another did", () => {
    clock.advance(100);
    return measured.length > 1;
  });
  assert.deepEqual([failures, measured.slice(0, 2)], [2, [[1234], []]]);
  stop.abort();
  await running;
});

test("FamilyProxy: a Service has ended well when a sync has written it, not when it is planned; one that is set aside is left out, and one that is too large is told", async (t) => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const plane = new RefusingPlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const seen: string[] = [];
  const steps: ServiceSteps = {
    step: (service, _version, work) => {
      if (service === "ns/aside") return { waitMs: 60_000 };
      if (seen.at(-1) !== service) seen.push(service);
      return { value: work() };
    },
    endedWell: (service) => void seen.push(`${service} ended well`),
  };
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] }, { steps });
  const told: string[] = [];
  const observer = {
    failed: () => void seen.push("failed"),
    tooLarge: (_family: number, { service }: { readonly service: string }) => void told.push(service),
  };
  const proxy = new FamilyProxy({ tracker, plane, observer, clock, log: nullLogger }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  for (const name of ["one", "aside"]) tracker.setService(`ns/${name}`, [servicePort(4, { name })]);
  const many = Math.ceil(Math.sqrt(MAX_ELEMENTS));
  const externalIPs = new Array(many).fill(servicePort(4, {}).clusterIP);
  const ports = Array.from({ length: many }, (_, at) => servicePort(4, { name: "large", port: at + 1, externalIPs }));
  tracker.setService("ns/large", ports);
  proxy.open();
  await until("a sync succeeded", () => {
    clock.advance(100);
    return proxy.hasSynced;
  });
  assert.deepEqual(seen.slice(0, 4), ["ns/one", "ns/large", "failed", "failed"]);
  assert.deepEqual(seen.slice(4, 7).toSorted(), ["ns/aside ended well", "ns/large ended well", "ns/one ended well"]);
  assert.deepEqual(
    [proxy.wanted.has("ns/one"), proxy.wanted.has("ns/aside"), proxy.wanted.has("ns/large")],
    [true, false, false],
  );
  assert.deepEqual(told, ["ns/large"]);
});

/** Holds whatever is planned. */
class IdlePlane extends DataPlane {
  override async sync(): Promise<SyncReport> {
    return REPORT;
  }
}

test("FamilyProxy: the Services that a failed sync has not planned are planned by the next one", async (t) => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const plane = new IdlePlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  let failures = 1;
  const judge = {
    judge: (): undefined => {
      failures -= 1;
      if (failures >= 0) throw new KernelError("busy", "cannot list elements: the table is busy");
    },
    forget: () => undefined,
  };
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] }, { judge });
  const proxy = new FamilyProxy({ tracker, plane, clock, log: nullLogger }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  for (const name of ["one", "two"]) tracker.setService(`ns/${name}`, [servicePort(4, { name })]);
  proxy.open();
  await until("a sync succeeded", () => {
    clock.advance(100);
    return proxy.hasSynced;
  });
  assert.deepEqual([failures < 0, proxy.wanted.has("ns/one"), proxy.wanted.has("ns/two")], [true, true, true]);
});

test("FamilyProxy: rounding of affinity timeouts is logged when it begins and when it ends", async (t) => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const plane = new IdlePlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const said: Record<string, unknown>[] = [];
  const log = createLogger({ name: "t", write: (line) => void said.push(JSON.parse(line)) });
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const proxy = new FamilyProxy({ tracker, plane, clock, log }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  const set = async (seconds: number, name = `ns/s${seconds}`): Promise<void> => {
    tracker.setService(name, seconds === 0 ? [] : [servicePort(4, { name, port: seconds, affinitySeconds: seconds })]);
    proxy.request();
    await clock.advance(100);
  };
  proxy.open();
  for (let seconds = 1; seconds <= MAX_TIMEOUTS; seconds += 1) await set(seconds);
  assert.equal(said.length, 0);
  for (const seconds of [MAX_TIMEOUTS + 1, MAX_TIMEOUTS + 2]) await set(seconds);
  assert.deepEqual(
    said.map(({ msg }) => msg),
    ["Services have too many different timeouts of session affinity; some are rounded up"],
  );
  for (const seconds of [MAX_TIMEOUTS + 1, MAX_TIMEOUTS + 2]) await set(0, `ns/s${seconds}`);
  assert.equal(said.at(-1)?.["msg"], "timeouts of session affinity are exact again");
});

test("FamilyProxy: while nothing changes a sync comes at the time at which unused chains are to be deleted, once", async (t) => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  let at: number | undefined = 60_000;
  let syncs = 0;
  class PlaneToClean extends IdlePlane {
    override get nextCleanupAt(): number | undefined {
      return at;
    }

    override async sync(): Promise<SyncReport> {
      syncs += 1;
      if (clock.monotonic() >= 60_000) at = undefined;
      return REPORT;
    }
  }
  const plane = new PlaneToClean(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const proxy = new FamilyProxy({ tracker, plane, clock, log: nullLogger }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  proxy.open();
  for (let change = 0; change < 3; change += 1) {
    await clock.advance(1000);
    proxy.request();
  }
  await clock.advance(1000);
  const before = syncs;
  await clock.advance(50_000);
  assert.equal(syncs, before);
  await clock.advance(600_000);
  assert.equal(syncs, before + 1);
});
