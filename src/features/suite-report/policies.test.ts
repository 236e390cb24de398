import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { DaemonSet } from "#kube/client";
import { type Enforcer, enforcersOf, judgePolicies } from "./policies.ts";

const daemonSet = (...containers: readonly object[]): DaemonSet =>
  ({
    metadata: { namespace: "kube-system", name: "ds" },
    spec: { template: { spec: { containers } } },
    status: { desiredNumberScheduled: 3, numberReady: 2 },
  }) as unknown as DaemonSet;

test("enforcersOf: known enforcers by their images, from any registry and with any tag; others, and a kube-router without firewall, are none", () => {
  for (const [image, name] of [
    ["docker.io/calico/node:v3.29.0", "Calico"],
    ["registry:5000/mirror/calico-node@sha256:00", "Calico"],
    ["quay.io/cilium/cilium:v1.18.1@sha256:00", "Cilium"],
    ["antrea/antrea-agent-ubuntu:v2.4.0", "Antrea"],
    ["cloudnativelabs/kube-router", "kube-router"],
    ["registry.k8s.io/networking/kube-network-policies:v1.0.0", "kube-network-policies"],
    ["kindest/kindnetd:v20250214", "kindnet"],
    ["weaveworks/weave-npc:2.8.1", "Weave Net"],
    ["ghcr.io/ovn-org/ovn-kubernetes/ovn-kube-ubuntu:master", "OVN-Kubernetes"],
    ["docker.io/kubeovn/kube-ovn:v1.14.0", "Kube-OVN"],
    ["602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon/aws-network-policy-agent:v1.2.0", "the agent of Amazon"],
    ["mcr.microsoft.com/containernetworking/azure-npm:v1.5.0", "Azure NPM"],
  ] as const)
    assert.deepEqual(
      enforcersOf(daemonSet({ image: "busybox" }, { image })),
      [{ name, daemonSet: "kube-system/ds", wanted: 3, ready: 2 }],
      image,
    );
  for (const image of [
    "isthmus:0.2.0",
    "flannel/flannel:v0.27",
    "cilium/operator:v1",
    "example/not-kube-router-ui",
    "calico/cni",
    "",
  ])
    assert.deepEqual(enforcersOf(daemonSet({ image })), [], image);
  const off = { image: "kube-router:1", args: ["--run-router=false", "--run-firewall=false"] };
  assert.deepEqual(enforcersOf(daemonSet(off)), []);
  fc.assert(fc.property(fc.string(), (image) => Array.isArray(enforcersOf(daemonSet({ image })))));
});

test("judgePolicies: policies that nobody enforces, or not on every node, are a warning that says what was looked for", () => {
  const calico = (ready: number): Enforcer => ({
    name: "Calico",
    daemonSet: "kube-system/calico-node",
    wanted: 3,
    ready,
  });
  const verdict = (policies: number, enforcers: readonly Enforcer[], nodes?: number, k3sNodes = 0) => {
    const { state, text } = judgePolicies({ policies, enforcers, k3sNodes }, nodes);
    return `${state}: ${text}`;
  };
  assert.equal(verdict(0, []), "ok: there are none");
  assert.match(
    verdict(4, []),
    /^warning: 4 are there, and nobody enforces them: .* Calico, Cilium, .*kube-network-policies/,
  );
  assert.match(verdict(1, [], 3, 3), /^unknown: 1 is there; k3s enforces them on its 3 nodes, unless/);
  assert.equal(
    verdict(4, [calico(3)], 3),
    "ok: 4 are there, for Calico (DaemonSet kube-system/calico-node) on 3 nodes",
  );
  assert.match(verdict(4, [calico(2)]), /^warning: .* ready on 2 of 3 nodes: on the others nobody enforces them$/);
  assert.match(verdict(4, [calico(3)], 5), /^warning: .* ready on 3 of 5 nodes/);
});
