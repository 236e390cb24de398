import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import type { AddressClaim, ClusterFacts } from "../plan/index.ts";
import { addressesOf, NODE, servicePort } from "../testing/fixture.ts";
import { endpointObject, sliceObject } from "../testing/objects.ts";
import { sliceView, Tracker } from "../track/index.ts";

const TAKEN = IpAddress.parse("203.0.113.50");

/** Refuses endpoints of other namespaces and keeps what it was told. */
class Judge {
  readonly forgotten: string[] = [];

  judge(_family: number, { address, namespace }: AddressClaim, cluster: ClusterFacts): string | undefined {
    if (cluster.isClusterIP(address)) return "a cluster IP";
    return cluster.otherEndpoint(address, namespace);
  }

  forget(service: string): void {
    this.forgotten.push(service);
  }
}

test("Tracker: a claim is judged again when an endpoint comes to its address and when it goes, and other Services are not", () => {
  const judge = new Judge();
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] }, { judge });
  assert.equal(tracker.hasExternal, false);
  const port = servicePort(4, { externalIPs: [TAKEN], loadBalancerIPs: [], nodePort: 0 });
  tracker.setService("ns/svc", [port]);
  const other = servicePort(4, {
    name: "other",
    clusterIP: port.clusterIP.plus(1),
    externalIPs: [],
    loadBalancerIPs: [],
  });
  tracker.setService("ns/other", [other]);
  tracker.take();
  const owners = (): readonly string[] => tracker.plan("ns/svc")?.refused.map(({ owner }) => owner) ?? [];
  assert.deepEqual(owners(), []);
  const object = sliceObject(4, [endpointObject(TAKEN, "elsewhere")], { service: "db" });
  const slice = sliceView({ ...object, metadata: { ...object.metadata, namespace: "db" } });
  tracker.setSlice("db/db", slice);
  assert.deepEqual([...tracker.take().services].sort(), ["db/db", "ns/svc"]);
  assert.deepEqual(owners(), ["db"]);
  tracker.setSlice("db/db", undefined);
  assert.ok(tracker.take().services.has("ns/svc"));
  assert.deepEqual(owners(), []);
  tracker.setSlice("ns/own", sliceView(sliceObject(4, [endpointObject(TAKEN, "here")])));
  assert.deepEqual(owners(), [], "its own namespace's");
  assert.equal(tracker.markExternal(), true);
  assert.deepEqual([...tracker.take().services].includes("ns/other"), false);
  tracker.setService("ns/svc", [{ ...port, externalIPs: [addressesOf(4).clusterIP.plus(1)] }]);
  assert.deepEqual(owners(), ["a cluster IP"]);
  tracker.setService("ns/svc", []);
  assert.deepEqual([judge.forgotten, tracker.hasExternal], [["ns/svc"], false]);
});

test("Tracker: NodePorts and ports of health checks are those of others, and who claims such a port is judged again when one comes or goes", () => {
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const none = { externalIPs: [], loadBalancerIPs: [], nodePort: 0 };
  tracker.setService("ns/svc", [servicePort(4, { ...none, externalIPs: [TAKEN], port: 30_080 })]);
  tracker.take();
  const other = servicePort(4, { ...none, name: "other", nodePort: 30_080, protocol: "UDP" });
  tracker.setService("ns/other", [{ ...other, healthCheckNodePort: 30_999 }]);
  assert.deepEqual([...tracker.take().services], ["ns/other"]);
  assert.deepEqual(
    (["UDP", "TCP"] as const).flatMap((protocol) =>
      [30_080, 30_999].map((port) => tracker.nodePortOf(protocol, port, "ns/svc") ?? ""),
    ),
    ["ns/other", "", "", "ns/other"],
  );
  assert.equal(tracker.nodePortOf("UDP", 30_080, "ns/other"), undefined, "its own");
  tracker.setService("ns/other", [{ ...other, protocol: "TCP" }]);
  assert.deepEqual([...tracker.take().services].sort(), ["ns/other", "ns/svc"]);
  tracker.setService("ns/other", []);
  assert.ok(tracker.take().services.has("ns/svc"));
  assert.equal(tracker.nodePortOf("TCP", 30_080, "ns/svc"), undefined);
});

test("Tracker: the API servers' ports are those of their slices", () => {
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const object = sliceObject(4, [endpointObject(TAKEN, "elsewhere")], {
    ...{ service: "kubernetes", ports: [{ name: "https", port: 7443, protocol: "TCP" as const }] },
  });
  tracker.setSlice(
    "default/kubernetes",
    sliceView({ ...object, metadata: { ...object.metadata, namespace: "default" } }),
  );
  assert.deepEqual([...tracker.apiServerPorts()], [7443]);
});
