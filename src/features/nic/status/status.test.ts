import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { NicClaim, NicStatus } from "#kube/nic";
import { defaultNic, gatewaysOf, routeMetric } from "./default-nic.ts";
import { planPodSurface, podSurface, waitingText } from "./pod-surface.ts";

const ETH0: NicStatus = {
  name: "eth0",
  portID: "p0",
  state: "Ready",
  reason: "Old",
  mac: "fa:16:3e:00:00:01",
  ips: [
    { ip: "192.168.0.12", prefixLength: 24, gateway: "192.168.0.1" },
    { ip: "fd00::5", prefixLength: 64 },
  ],
};
const ETH1: NicStatus = { name: "eth1", state: "Failed", reason: "IpInUse", message: "10.0.0.5 belongs to port x" };

function claimOf(
  nics: readonly NicStatus[] | undefined,
  wish: NicClaim["spec"]["nics"] = [{ name: "eth0" }, { name: "eth1" }],
): NicClaim {
  return {
    metadata: { name: "uid", namespace: "n", uid: "u", resourceVersion: "1" },
    spec: { podName: "p", podUID: "uid", vpc: "vpc-1", provider: "n", nics: wish },
    ...(nics === undefined ? {} : { status: { nics: [...nics] } }),
  };
}

test("surface: the annotations have the NICs in the order of the pod, compact, and the address for other tools", () => {
  const { annotations } = podSurface(claimOf([ETH1, ETH0]));
  assert.deepEqual(annotations, {
    "isthmus.dev/claim": "uid",
    "isthmus.dev/nic-status":
      '[{"name":"eth0","portID":"p0","state":"Ready","ips":["192.168.0.12/24","fd00::5/64"],"mac":"fa:16:3e:00:00:01"},{"name":"eth1","state":"Failed","reason":"IpInUse"}]',
    "k8s.v1.cni.cncf.io/network-status":
      '[{"name":"vpc-1","interface":"eth0","ips":["192.168.0.12","fd00::5"],"mac":"fa:16:3e:00:00:01","default":true,"dns":{}}]',
  });
  const unknown = podSurface(claimOf(undefined)).annotations["isthmus.dev/nic-status"];
  assert.equal(unknown, '[{"name":"eth0","state":"Unknown"},{"name":"eth1","state":"Unknown"}]');
});

test("surface: the pod is ready when all its NICs are, and the condition says for what it waits", () => {
  assert.deepEqual(podSurface(claimOf([ETH0], [{ name: "eth0" }])).condition, {
    type: "isthmus.dev/NicsReady",
    status: "True",
    reason: "AllReady",
    message: "all NICs are ready",
  });
  assert.deepEqual(podSurface(claimOf([ETH0, ETH1])).condition, {
    type: "isthmus.dev/NicsReady",
    status: "False",
    reason: "IpInUse",
    message: "eth1=Failed(IpInUse: the address is in use)",
  });
  assert.equal(podSurface(claimOf([ETH0])).condition.reason, "Waiting");
  assert.equal(
    waitingText([{ name: "eth0", state: "InProgress" }, ETH1]),
    "eth0=InProgress, eth1=Failed(IpInUse: the address is in use)",
  );
});

test("surface: what a pod shows already is not written, and the time moves only with the status", () => {
  const now = Date.parse("2026-01-02T03:04:05.678Z");
  const surface = podSurface(claimOf([ETH0, ETH1]));
  const first = planPodSurface({ metadata: {} }, surface, { now });
  assert.deepEqual(first.annotations, surface.annotations);
  assert.ok(first.condition !== undefined);
  assert.equal(first.condition.lastTransitionTime, "2026-01-02T03:04:05Z");
  const pod = {
    metadata: { annotations: { ...surface.annotations, x: "y" } },
    status: { conditions: [first.condition] },
  };
  assert.deepEqual(planPodSurface(pod, surface, { now: now + 60_000 }), {});
  const waiting = planPodSurface(pod, podSurface(claimOf([ETH0])), { now: now + 60_000 });
  assert.deepEqual(Object.keys(waiting.annotations ?? {}), ["isthmus.dev/nic-status"]);
  assert.equal(waiting.condition?.lastTransitionTime, "2026-01-02T03:04:05Z");
  const ready = planPodSurface(pod, podSurface(claimOf([ETH0], [{ name: "eth0" }])), { now: now + 60_000 });
  assert.equal(ready.condition?.lastTransitionTime, "2026-01-02T03:05:05Z");
});

test("default route: the chosen NIC if it has a gateway, else the first that has one; a route of the subnet replaces the gateway", () => {
  const nic = (name: string, gateway?: string, routes: NicStatus["routes"] = []): NicStatus => ({
    name,
    state: "Ready",
    ips: [{ ip: "10.0.0.5", prefixLength: 24, ...(gateway === undefined ? {} : { gateway }) }],
    routes,
  });
  const nics = [nic("eth0"), nic("eth1", "10.0.0.1"), nic("eth2", "10.0.0.2")];
  assert.equal(defaultNic(nics, undefined)?.name, "eth1");
  assert.equal(defaultNic(nics, "eth2")?.name, "eth2");
  assert.equal(defaultNic(nics, "eth0")?.name, "eth1");
  assert.equal(defaultNic([nic("eth0")], "eth0"), undefined);
  assert.deepEqual(gatewaysOf(nic("a", "10.0.0.1", [{ dst: "0.0.0.0/0", via: "10.0.0.9" }])), {
    4: "10.0.0.9",
    6: undefined,
  });
  assert.deepEqual(gatewaysOf({ ...nic("a"), ips: [{ ip: "fd00::5", prefixLength: 64, gateway: "fe80::1" }] }), {
    4: undefined,
    6: "fe80::1",
  });
  const metrics = (first: NicStatus | undefined) => nics.map((_, at) => routeMetric(nics, at, first));
  assert.deepEqual(
    [metrics(nics[0]), metrics(nics[2])],
    [
      [100, 101, 102],
      [103, 101, 100],
    ],
  );
});

test("surface: entries of the network status that are another program's stay, with their interfaces and the default", () => {
  const key = "k8s.v1.cni.cncf.io/network-status";
  const surface = podSurface(claimOf([ETH0]));
  const planned = (shown: string): unknown => {
    const { annotations = {} } = planPodSurface({ metadata: { annotations: { [key]: shown } } }, surface, { now: 0 });
    return annotations[key];
  };
  const ours = {
    name: "vpc-1",
    interface: "eth0",
    ips: ["192.168.0.12", "fd00::5"],
    mac: "fa:16:3e:00:00:01",
    dns: {},
  };
  const net1 = { name: "default/storage", interface: "net1", ips: ["10.9.0.2"] };
  const old = { ...ours, ips: ["192.168.0.99"] };
  const entries = JSON.parse(String(planned(JSON.stringify([net1, old]))));
  assert.deepEqual(entries, [net1, { ...ours, default: true }]);
  const first = { ...net1, default: true };
  assert.deepEqual(JSON.parse(String(planned(JSON.stringify([first])))), [first, ours]);
  const taken = { name: "cluster", interface: "eth0", default: true };
  assert.equal(planned(JSON.stringify([taken])), undefined, "it has our interface already");
  const pretty = JSON.stringify([first, ours], undefined, 4);
  assert.equal(planned(pretty), undefined, "blanks of others stay");
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void planned(text)));
});
