import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { FakeConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { until } from "#test/lab";
import { DataPlane, GenerationTracker, type SyncReport } from "../dataplane/index.ts";
import { addressesOf, NODE, ruleOptions, SERVICE_PORT, servicePort, TARGET_PORT } from "../testing/fixture.ts";
import { Tracker } from "../track/index.ts";
import { FamilyProxy } from "./index.ts";

class IdlePlane extends DataPlane {
  override async sync(): Promise<SyncReport> {
    return { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };
  }
}

/** Refuses once, when it is set to. */
class RefusingConntrack extends FakeConntrack {
  refusals = 0;

  override async delete(...args: Parameters<FakeConntrack["delete"]>): Promise<number> {
    this.refusals -= 1;
    if (this.refusals === 0) throw new KernelError("busy", "cannot delete flows: the table is busy");
    return super.delete(...args);
  }
}

test("FamilyProxy: flows that could not be deleted after one sync are deleted after the next", async (t) => {
  const clock = new FakeClock();
  const elements = new FakeNftElements();
  const plane = new IdlePlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const { clusterIP, external, localEndpoint } = addressesOf(4);
  const conntrack = new RefusingConntrack();
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const proxy = new FamilyProxy({ tracker, plane, conntrack, clock, log: nullLogger }, { minSyncMs: 0, syncMs: 1000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  proxy.open();
  await clock.advance(100);
  conntrack.entries.push({
    family: 4,
    protocol: 17,
    original: { src: external, dst: clusterIP, srcPort: 40_000, dstPort: SERVICE_PORT },
    reply: { src: localEndpoint, dst: external, srcPort: TARGET_PORT, dstPort: 40_000 },
    mark: 0,
  });
  conntrack.refusals = 1;
  // A Service without endpoints: the answering address is no endpoint.
  tracker.setService("ns/svc", [servicePort(4, { protocol: "UDP" })]);
  proxy.request();
  await until(
    "the flow is deleted",
    async () => {
      await clock.advance(100);
      return conntrack.entries.length === 0;
    },
    { deadlineMs: 3000 },
  );
  assert.ok(conntrack.refusals < 0, "it was refused first");
});
