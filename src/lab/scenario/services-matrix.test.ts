import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { judge, type PlannedTry, planTries } from "./services-matrix.ts";
import type { BackendPod } from "./services-observe.ts";

const ip = (text: string): IpAddress => IpAddress.parse(text);
const pod = (name: string, app: string, node: string, address: string): BackendPod => ({
  name,
  app,
  node,
  netns: `/run/netns/${name}`,
  addresses: [ip(address)],
});
const WEB1 = pod("web-1", "web", "node1", "10.1.0.1");
const WEB2 = pod("web-2", "web", "node2", "10.1.0.2");
const EDGE1 = pod("edge-1", "edge", "node1", "10.1.0.3");
const service = (clusterIp: string, nodePort: number) => ({
  clusterIps: [ip(clusterIp)],
  ingress: [ip("203.0.113.10")],
  nodePort,
  healthCheckNodePort: 0,
});
const PLACE: Parameters<typeof planTries>[0] = {
  state: {
    nodes: ["node1", "node2"].map((name) => ({ name, netns: `lab-${name}`, addresses: [] })),
    families: [4],
  },
  at: { outside: "fabric", addresses: [], healthPort: 10_256, backend: { command: [], port: 8080 } },
  observed: {
    services: new Map([
      ["web", service("10.96.0.1", 30_001)],
      ["edge", service("10.96.0.2", 30_002)],
      ["near", service("10.96.0.3", 0)],
      ["lonely", service("10.96.0.4", 0)],
    ]),
    pods: [WEB1, WEB2, EDGE1],
  },
  addressesOf: (node) => [ip(node === "node1" ? "172.31.0.11" : "172.31.0.12")],
  outside: [ip("172.31.0.1")],
};

function wantedOf(from: string, to: string): PlannedTry["wanted"] | undefined {
  return planTries(PLACE, 4).find((planned) => planned.from === from && planned.to === to)?.wanted;
}

test("planTries: Cluster goes to all pods from everywhere, Local to the node's own or to none", () => {
  for (const from of ["node1", "node2", "web-1", "web-2"])
    assert.deepEqual(wantedOf(from, "web by cluster IP"), [WEB1, WEB2], from);
  assert.deepEqual(wantedOf("outside", "web by NodePort of node2"), [WEB1, WEB2]);
  assert.deepEqual(wantedOf("outside", "edge by NodePort of node1"), [EDGE1]);
  assert.equal(wantedOf("outside", "edge by NodePort of node2"), "silent");
  assert.deepEqual(wantedOf("web-1", "near by cluster IP"), [EDGE1]);
  assert.equal(wantedOf("web-2", "near by cluster IP"), "silent");
  assert.equal(wantedOf("web-2", "lonely by cluster IP"), "refused");
  assert.deepEqual(planTries(PLACE, 6), []);
});

test("judge: the pod that answered, the client address that it saw, and the kind of failure", () => {
  const planned: PlannedTry = {
    from: "outside",
    netns: { name: "fabric" },
    to: "edge",
    address: ip("172.31.0.11"),
    port: 30_002,
    wanted: [EDGE1],
    seen: ip("172.31.0.1"),
  };
  const answer = (backend: string, client: string) => ({ answer: { backend: ip(backend), client: ip(client) } });
  assert.equal(judge(planned, answer("10.1.0.3", "172.31.0.1")).ok, true);
  const masqueraded = judge(planned, answer("10.1.0.3", "172.31.0.12"));
  assert.deepEqual([masqueraded.ok, masqueraded.got], [false, "edge-1, which saw 172.31.0.12 instead of 172.31.0.1"]);
  assert.equal(judge(planned, answer("10.1.0.1", "172.31.0.1")).ok, false);
  assert.equal(judge(planned, { why: "silent", error: "nothing came" }).ok, false);
  const nobody = { ...planned, wanted: "silent" as const };
  assert.equal(judge(nobody, { why: "silent", error: "nothing came" }).ok, true);
  assert.equal(judge(nobody, { why: "refused", error: "ECONNREFUSED" }).ok, false);
  assert.equal(judge(nobody, answer("10.1.0.3", "172.31.0.1")).ok, false);
  // A pod that reaches itself sees its node.
  const self = { ...planned, from: "edge-1", seen: ip("10.1.0.3") };
  assert.equal(judge(self, answer("10.1.0.3", "172.31.0.11")).ok, true);
});
