import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { type ConntrackEntry, FakeConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { DataPlane, GenerationTracker, type SyncReport } from "../dataplane/index.ts";
import type { ServicePort } from "../model/index.ts";
import { addressKey, type FrontEndKey, frontEndId } from "../plan/index.ts";
import { addressesOf, NODE, ruleOptions, SERVICE_PORT, servicePort, TARGET_PORT } from "../testing/fixture.ts";
import { type SliceView, Tracker } from "../track/index.ts";
import { FamilyProxy } from "./index.ts";

class IdlePlane extends DataPlane {
  /** The front ends that the next sync has removed. */
  removed = new Map<string, FrontEndKey>();

  override takeRemovedUdp(): ReadonlyMap<string, FrontEndKey> {
    const { removed } = this;
    this.removed = new Map();
    return removed;
  }

  override async sync(): Promise<SyncReport> {
    return { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };
  }
}

/** Refuses while it is set to, as a kernel without the subsystem does, and stops where it is told to. */
class OtherConntrack extends FakeConntrack {
  isMissing = false;
  tries = 0;
  /** Each pass waits for it between its listing and its deletions. */
  gate: Promise<void> | undefined;

  override async delete(...[filter, when = () => true]: Parameters<FakeConntrack["delete"]>): Promise<number> {
    this.tries += 1;
    if (this.isMissing) throw new KernelError("invalid", "Cannot list IPv4 connections: Invalid argument (EINVAL)");
    const listed = new Set(this.list(filter).filter(when));
    await this.gate;
    return super.delete(filter, (entry) => listed.has(entry) && when(entry));
  }
}

const { clusterIP, external, localEndpoint } = addressesOf(4);

/** A flow to the Service. */
const FLOW: ConntrackEntry = {
  family: 4,
  protocol: 17,
  original: { src: external, dst: clusterIP, srcPort: 40_000, dstPort: SERVICE_PORT },
  reply: { src: localEndpoint, dst: external, srcPort: TARGET_PORT, dstPort: 40_000 },
  mark: 0,
};

/** A slice of the Service with this endpoint, which is ready unless `conditions` say otherwise. */
const sliceOf = (address: IpAddress, conditions: Partial<SliceView["endpoints"][number]> = {}): SliceView => ({
  metadata: { name: "s", namespace: "ns", uid: "1", resourceVersion: "1" },
  service: "ns/svc",
  family: 4,
  ports: [{ name: servicePort(4).portName, protocol: "UDP", port: TARGET_PORT }],
  endpoints: [
    {
      address: String(address),
      nodeName: NODE.name,
      ready: true,
      serving: true,
      terminating: false,
      zoneHints: [],
      nodeHints: [],
      ...conditions,
    },
  ],
  triggeredAt: 0,
});

const OTHER = { name: "other", port: SERVICE_PORT + 1 };

function setUp(t: TestContext) {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const said: Record<string, unknown>[] = [];
  const log = createLogger({ name: "t", write: (line) => void said.push(JSON.parse(line)) });
  const plane = new IdlePlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock: systemClock, log },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const conntrack = new OtherConntrack();
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const count = { synced: 0, failed: 0, flowsFailed: 0, flowsChecked: 0, deleted: 0 };
  const observer = {
    synced: () => {
      count.synced += 1;
    },
    failed: () => {
      count.failed += 1;
    },
    flowsFailed: () => {
      count.flowsFailed += 1;
    },
    flowsDeleted: (_: number, flows: number) => {
      count.flowsChecked += 1;
      count.deleted += flows;
    },
  };
  const proxy = new FamilyProxy({ tracker, plane, conntrack, observer, clock, log }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  /** Syncs a Service whose endpoints are none, so that all its flows are stale. */
  const change = async (of: Partial<ServicePort> = {}): Promise<void> => {
    const port = servicePort(4, { protocol: "UDP", nodePort: 0, ...of });
    tracker.setService(`${port.namespace}/${port.name}`, [port]);
    proxy.request();
    await clock.advance(200);
  };
  return { clock, conntrack, plane, tracker, proxy, count, change, messages: () => said.map(({ msg }) => msg) };
}

test("FamilyProxy: without connection tracking in the kernel syncs succeed all the same, and flows are checked again, less and less often", async (t) => {
  const { clock, conntrack, proxy, count, change, messages } = setUp(t);
  conntrack.isMissing = true;
  proxy.open();
  await clock.advance(200);
  for (let at = 0; at < 20; at += 1) await change();
  assert.deepEqual([count.failed, count.synced], [0, 21]);
  assert.ok(count.flowsFailed > 1 && count.flowsFailed < 8, `${count.flowsFailed} tries`);
  const { tries } = conntrack;
  await clock.advance(600_000);
  assert.ok(conntrack.tries - tries >= 9 && conntrack.tries - tries <= 40, `${conntrack.tries - tries} tries`);
  assert.deepEqual(messages(), ["connection tracking cannot be read: stale UDP flows are not deleted; trying again"]);
});

test("FamilyProxy: flows that could not be deleted are deleted when they can be, without another sync", async (t) => {
  const { clock, conntrack, proxy, count, change, messages } = setUp(t);
  proxy.open();
  await clock.advance(200);
  assert.equal(count.flowsChecked, 1, "connection tracking was tried, though no Service has UDP");
  conntrack.isMissing = true;
  conntrack.entries.push(FLOW);
  await change();
  await change(OTHER);
  assert.equal(conntrack.entries.length, 1);
  conntrack.isMissing = false;
  const { synced } = count;
  await clock.advance(2000);
  assert.deepEqual([conntrack.entries, count.synced, count.failed], [[], synced, 0]);
  assert.equal(count.deleted, 1);
  assert.equal(messages().at(-1), "connection tracking can be read again");
});

/** A proxy whose check of a flow waits for a gate. */
async function whileChecking(t: TestContext) {
  const bed = setUp(t);
  bed.proxy.open();
  await bed.clock.advance(200);
  const gate = Promise.withResolvers<void>();
  bed.conntrack.gate = gate.promise;
  bed.conntrack.entries.push(FLOW);
  await bed.change();
  return { ...bed, gate };
}

test("FamilyProxy: no sync and no look for drift waits for a check of flows", async (t) => {
  const { clock, gate, proxy, count, change } = await whileChecking(t);
  assert.deepEqual([proxy.isCheckingFlows, proxy.isBusy, count.synced], [true, false, 2]);
  await change(OTHER);
  assert.deepEqual([proxy.isCheckingFlows, proxy.isBusy, count.synced], [true, false, 3]);
  gate.resolve();
  await clock.advance(200);
  assert.deepEqual([proxy.isCheckingFlows, count.deleted], [false, 1]);
});

test("FamilyProxy: an endpoint that comes back while flows are checked keeps its flows", async (t) => {
  const { clock, conntrack, gate, tracker, proxy, count } = await whileChecking(t);
  assert.equal(proxy.isCheckingFlows, true);
  tracker.setSlice("ns/s", sliceOf(localEndpoint));
  proxy.request();
  await clock.advance(200);
  gate.resolve();
  await clock.advance(200);
  assert.deepEqual([conntrack.entries.length, count.deleted, proxy.isCheckingFlows], [1, 0, false]);
});

const GONE: FrontEndKey = { key: addressKey(clusterIP, "UDP", SERVICE_PORT), isNodePort: false };

test("FamilyProxy: flows of a front end that was removed while connection tracking could not be read are deleted when it can be", async (t) => {
  const { clock, conntrack, plane, proxy, count } = setUp(t);
  proxy.open();
  await clock.advance(200);
  conntrack.isMissing = true;
  conntrack.entries.push(FLOW);
  plane.removed.set(frontEndId(GONE), GONE);
  proxy.request();
  await clock.advance(200);
  assert.deepEqual([count.flowsFailed, conntrack.entries.length], [1, 1]);
  conntrack.isMissing = false;
  await clock.advance(2000);
  assert.deepEqual([count.deleted, conntrack.entries], [1, []]);
});

test("FamilyProxy: a front end that comes back before its flows are deleted has them compared with its endpoints", async (t) => {
  const { clock, conntrack, plane, tracker, proxy, count, change } = setUp(t);
  proxy.open();
  await clock.advance(200);
  conntrack.isMissing = true;
  conntrack.entries.push(FLOW);
  plane.removed.set(frontEndId(GONE), GONE);
  proxy.request();
  await clock.advance(200);
  tracker.setSlice("ns/s", sliceOf(localEndpoint));
  await change();
  conntrack.isMissing = false;
  await clock.advance(5000);
  assert.deepEqual([count.deleted, conntrack.entries.length], [0, 1]);
});

const UNREADY = { ready: false, serving: false } as const;

test("FamilyProxy: where the Service says so, flows stay with an endpoint that is not ready, until its time is over; one that is ready meanwhile has the whole time again", async (t) => {
  const { clock, conntrack, tracker, proxy, change } = setUp(t);
  proxy.open();
  conntrack.entries.push(FLOW);
  const become = async (conditions: Partial<SliceView["endpoints"][number]>): Promise<void> => {
    tracker.setSlice("ns/s", sliceOf(localEndpoint, conditions));
    proxy.request();
    await clock.advance(200);
  };
  await become({});
  await change({ unreadyFlowSeconds: 60 });
  await become(UNREADY);
  await clock.advance(50_000);
  await become({});
  await become(UNREADY);
  await clock.advance(50_000);
  // Whatever else changes.
  await change({ unreadyFlowSeconds: 60, affinitySeconds: 10 });
  assert.equal(conntrack.entries.length, 1);
  await clock.advance(11_000);
  assert.equal(conntrack.entries.length, 0);
  conntrack.entries.push(FLOW);
  await change({ unreadyFlowSeconds: 60 });
  assert.equal(conntrack.entries.length, 0, "its time does not begin anew");
  await become({});
  conntrack.entries.push(FLOW);
  await become({ ...UNREADY, terminating: true });
  assert.equal(conntrack.entries.length, 0, "one that terminates does not start again");
  await become({});
  conntrack.entries.push(FLOW);
  await become(UNREADY);
  tracker.setSlice("ns/s", sliceOf(external));
  proxy.request();
  await clock.advance(200);
  assert.equal(conntrack.entries.length, 0, "one that is gone keeps none");
});

test("FamilyProxy: without a time flows leave an endpoint that is not ready at once", async (t) => {
  const { clock, conntrack, tracker, proxy, change } = setUp(t);
  proxy.open();
  conntrack.entries.push(FLOW);
  tracker.setSlice("ns/s", sliceOf(localEndpoint));
  await change();
  assert.equal(conntrack.entries.length, 1);
  tracker.setSlice("ns/s", sliceOf(localEndpoint, UNREADY));
  proxy.request();
  await clock.advance(200);
  assert.equal(conntrack.entries.length, 0);
});
