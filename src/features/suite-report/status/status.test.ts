import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import type { Pod } from "#kube/client";
import { POD_NAMES } from "../programs.ts";
import { maxBlocksOf } from "./cluster-rows.ts";
import { type InstanceAnswer, instanceKey, instancesOf, type SuiteFacts, tagOf } from "./facts.ts";
import { suiteStatus } from "./model.ts";
import { suiteStatusText } from "./text.ts";

const isFoundBy = (labels: Readonly<Record<string, string>>): boolean =>
  POD_NAMES.includes(labels["app.kubernetes.io/name"] ?? "");
const NOW = Date.parse("2026-11-25T00:00:00Z");
const NONE: SuiteFacts = {
  server: "https://api:6443",
  now: NOW,
  nodes: { value: [] },
  instances: { value: [] },
  processes: [],
  answers: new Map(),
  pools: { value: undefined },
  blocks: { value: undefined },
  requests: { value: undefined },
  egresses: { value: undefined },
  routers: { value: [] },
  services: { value: 0 },
  slices: { value: 0 },
  policies: { value: { policies: 0, enforcers: [], k3sNodes: 0 } },
  claims: { value: undefined },
  leases: { value: [] },
  forward: undefined,
  events: { value: [] },
};

function pod(name: string, node: string, { ready = true, image = "isthmus:0.1.0", ...more } = {}): Pod {
  return {
    metadata: { name, namespace: "kube-system", uid: name, resourceVersion: "1", creationTimestamp: "" },
    spec: { nodeName: node, containers: [{ name: "coild", image, command: ["coild"] }] },
    status: {
      phase: "Running",
      containerStatuses: [
        { name: "coild", ready, restartCount: 1, image, imageID: "", state: { running: {} }, ...more } as never,
      ],
    },
  } as unknown as Pod;
}

test("instancesOf: a pod of the suite by its commands, with its reason; others and ended ones are none", () => {
  const [one] = instancesOf(pod("coild-a", "n1", { ready: false, image: "registry:5000/isthmus@sha256:00" }));
  assert.deepEqual(
    [one?.program, one?.name, one?.node, one?.tag, one?.isReady, one?.reason, one?.health?.port],
    ["coild", "kube-system/coild-a", "n1", undefined, false, "the readiness probe fails", 9385],
  );
  const waiting = { state: { waiting: { reason: "ImagePullBackOff", message: "no such image" } }, ready: false };
  assert.equal(instancesOf(pod("b", "n", waiting as object))[0]?.reason, "ImagePullBackOff: no such image");
  const ended = pod("c", "n");
  assert.deepEqual(instancesOf({ ...ended, status: { ...ended.status, phase: "Succeeded" } }), []);
  assert.deepEqual(instancesOf({ ...ended, spec: { containers: [{ name: "web", image: "nginx" }] } }), []);
});

test("instancesOf: outside of kube-system only routers count, unless that namespace is asked for", () => {
  const tenants = pod("fake", "n1");
  const there = { ...tenants, metadata: { ...tenants.metadata, namespace: "tenant" } };
  assert.deepEqual(instancesOf(there), []);
  assert.equal(instancesOf(there, "tenant").length, 1);
  const router = { ...there, spec: { containers: [{ name: "egress", command: ["coil-egress"] }] } };
  assert.equal(instancesOf(router)[0]?.program, "coil-egress");
});

test("tagOf: the tag of an image, not the port of a registry", () => {
  for (const [image, tag] of [
    ["isthmus:0.1.0", "0.1.0"],
    ["registry:5000/a/isthmus", undefined],
    ["registry:5000/a/isthmus:v1@sha256:0a", "v1"],
    ["", undefined],
  ] as const)
    assert.equal(tagOf(image), tag, image);
});

test("suiteStatus: 5,000 nodes are a few rows; those that are not ready are named, the others counted", () => {
  const instances = Array.from({ length: 5000 }, (_, at) =>
    instancesOf(pod(`coild-${at}`, `node-${at}`, { ready: at >= 30, image: at < 2500 ? "isthmus:1" : "isthmus:2" })),
  ).flat();
  const status = suiteStatus({ ...NONE, instances: { value: instances } });
  assert.equal(status.ready, false);
  assert.deepEqual(
    status.programs.map(({ program, version, ready, instances: of, nodes }) => [program, version, ready, of, nodes]),
    [
      ["coild", "1", 2470, 2500, 2500],
      ["coild", "2", 2500, 2500, 2500],
    ],
  );
  assert.deepEqual([status.notReady.rows.length, status.notReady.more], [20, 10]);
  const text = suiteStatusText(status);
  assert.ok(text.split("\n").length < 40, text);
  assert.match(text, /^coild {4}kube-system\/coild-0 +node-0 +the readiness probe fails$/m);
  assert.match(text, /^and 10 more$/m);
});

test("suiteStatus: a program's own answer has its version, and the parts that are not ready", () => {
  const instances = instancesOf(pod("coild-a", "n1"));
  const answer: InstanceAnswer = {
    readiness: { value: { isReady: false, parts: [{ name: "ipam", ok: false, text: "degraded: no\u001b[2J API" }] } },
    samples: {
      value: [
        { name: "isthmus_build_info", labels: { version: "0.2.0" }, value: 1 },
        { name: "coil_coild_addresses", labels: { pool: "default", state: "used" }, value: 7 },
        { name: "coil_coild_addresses", labels: { pool: "default", state: "free" }, value: 9 },
      ],
    },
  };
  const [first] = instances;
  assert.ok(first !== undefined);
  const metadata = { name: "default", uid: "u", resourceVersion: "1", creationTimestamp: "" };
  const status = suiteStatus({
    ...NONE,
    instances: { value: instances },
    answers: new Map([[instanceKey(first), answer]]),
    pools: { value: [{ metadata, spec: { blockSizeBits: 4, subnets: [{ ipv4: "10.0.0.0/24" }] } }] },
    blocks: { value: [{ metadata: { ...metadata, labels: { "coil.cybozu.com/pool": "default" } } }] },
  });
  assert.equal(status.programs[0]?.version, "0.2.0");
  assert.deepEqual(status.pools.rows, [
    { name: "default", blocks: 1, maxBlocks: 16, usedAddresses: 7, freeAddresses: 9 },
  ]);
  const text = suiteStatusText(status);
  assert.match(
    text,
    /^coild +kube-system\/coild-a +n1 +ipam degraded: no\\u001b\[2J API$/m,
    "nothing draws on the terminal",
  );
  assert.match(text, /^default +1 of 16 +7 +9$/m);
});

test("suiteStatus: parts that do not work in a program that is ready are shown, and leave it ready", () => {
  const instances = instancesOf(pod("coild-a", "n1"));
  const [first] = instances;
  assert.ok(first !== undefined);
  const parts = [
    { name: "ipam", ok: true, text: "ok" },
    { name: "source-ports", ok: false, text: "degraded: no common source port is left to tcp 203.0.113.9:443" },
  ];
  const answers = new Map([[instanceKey(first), { readiness: { value: { isReady: true, parts } } }]]);
  const status = suiteStatus({ ...NONE, instances: { value: instances }, answers });
  assert.deepEqual([status.ready, status.notReady.rows], [true, []]);
  const text = suiteStatusText(status);
  assert.match(text, /^ready, with parts that do not work:$/m);
  assert.match(
    text,
    /^coild +kube-system\/coild-a +n1 +source-ports degraded: no common source port .*203\.0\.113\.9:443$/m,
  );
  const unready = { readiness: { value: { isReady: false, parts } } };
  const again = suiteStatus({
    ...NONE,
    instances: { value: instances },
    answers: new Map([[instanceKey(first), unready]]),
  });
  assert.deepEqual([again.notReady.rows.length, again.degraded.rows], [1, []], "each is named once");
});

test("suiteStatus: filters that drop what this machine forwards for pods are named with each command on a line, and filters that cannot be read are named", () => {
  const finding = { family: 4, direction: "from", outcome: "dropped", by: "its policy drop" } as const;
  const value = [
    { ...finding, filter: "nftables table inet wall, chain fwd", allow: "nft insert rule inet wall fwd a" },
    {
      ...finding,
      filter: "nftables table inet wall, chain fwd",
      direction: "to",
      allow: "nft insert rule inet wall fwd b",
    },
    { ...finding, filter: "passes", outcome: "accepted", allow: "c" },
    { ...finding, filter: "perhaps", outcome: "maybe", allow: "d" },
  ] as const;
  const status = suiteStatus({ ...NONE, forward: { value } });
  assert.equal(status.ready, true);
  assert.deepEqual(status.forwardDrops?.rows[0]?.allow, [
    "nft insert rule inet wall fwd a",
    "nft insert rule inet wall fwd b",
  ]);
  const text = suiteStatusText(status);
  assert.match(
    text,
    /^packet filters of this machine .*:\nnftables table inet wall, chain fwd drops packets from and to pods \(IPv4\) by its policy drop\n {2}nft insert rule inet wall fwd a\n {2}nft insert rule inet wall fwd b\nperhaps drops .*, unless a rule .*\nThe commands let them pass; /m,
  );
  assert.doesNotMatch(text, /passes|^ {2}d$/m);
  const none = suiteStatus({ ...NONE, forward: { value: [] } });
  assert.deepEqual(none.forwardDrops, { rows: [], more: 0 });
  assert.doesNotMatch(suiteStatusText(none), /packet filters/);
  const unread = suiteStatus({ ...NONE, forward: { fault: "not permitted" } });
  assert.deepEqual(unread.notRead, [{ what: "packet filters of this machine", why: "not permitted" }]);
  assert.equal(unread.forwardDrops, undefined);
});

test("suiteStatus: routers that are missing and stale leaders are not ready; an absent part is no fault; a missing right is named once", () => {
  const meta = { uid: "u", resourceVersion: "1", creationTimestamp: "", namespace: "internet" };
  const lease = (name: string, age: number) => ({
    metadata: { ...meta, namespace: "kube-system", name },
    spec: { holderIdentity: "a", leaseDurationSeconds: 15, renewTime: new Date(NOW - age * 1000).toISOString() },
  });
  assert.equal(suiteStatus(NONE).ready, true);
  const forbidden = { fault: 'pods is forbidden: User "bob" cannot list resource "pods"' };
  const status = suiteStatus({
    ...NONE,
    egresses: { value: [{ metadata: { ...meta, name: "nat" }, spec: { destinations: ["0.0.0.0/0"], replicas: 2 } }] },
    leases: { value: [lease("coil-ipam-leader", 5), lease("coil-egress-leader", 90), lease("other", 900)] },
    instances: forbidden,
  });
  assert.equal(status.ready, false);
  assert.deepEqual(status.egresses.rows, [{ namespace: "internet", name: "nat", ready: 0, wanted: 2 }]);
  assert.deepEqual(
    status.leaders.rows.map(({ lease: name, isStale }) => [name, isStale]),
    [
      ["kube-system/coil-egress-leader", true],
      ["kube-system/coil-ipam-leader", false],
    ],
  );
  assert.deepEqual(status.notRead, [{ what: "Pods", why: forbidden.fault }]);
  const many = Array.from({ length: 50 }, (_, at) => instancesOf(pod(`coild-${at}`, `n${at}`))).flat();
  const why = (name: string) => ({ fault: `pods "${name}" is forbidden: User "bob" cannot get resource "pods/proxy"` });
  const refused = suiteStatus({
    ...NONE,
    instances: { value: many },
    answers: new Map(many.map((one) => [instanceKey(one), { readiness: why(one.name), samples: why(one.name) }])),
  });
  assert.equal(refused.ready, true);
  assert.equal(refused.notRead.length, 1, JSON.stringify(refused.notRead));
  assert.match(refused.notRead[0]?.why ?? "", /cannot get resource "pods\/proxy"/);
  assert.match(
    refused.notRead[0]?.why ?? "",
    /^[^,:]+(, [^,:]+){4} and \d+ more: pods/,
    "pods that could not be asked are named",
  );
});

test("suiteStatus: the Lease of a part that was taken out is no fault; one without a leader is, where there is something to serve", () => {
  const meta = { uid: "u", resourceVersion: "1", creationTimestamp: "", namespace: "kube-system" };
  const spec = { holderIdentity: "", leaseDurationSeconds: 1, renewTime: new Date(NOW - 86_400_000).toISOString() };
  const leases = { value: [{ metadata: { ...meta, name: "coil-egress-leader" }, spec }] };
  const without = suiteStatus({ ...NONE, leases });
  assert.deepEqual([without.ready, without.leaders.rows], [true, []]);
  const nat = { metadata: { ...meta, name: "nat" }, spec: { destinations: ["0.0.0.0/0"], replicas: 0 } };
  const used = suiteStatus({ ...NONE, leases, egresses: { value: [nat] } });
  assert.deepEqual([used.ready, used.leaders.rows.map(({ isStale }) => isStale)], [false, [true]]);
  const held = {
    value: [
      { ...leases.value[0], metadata: { ...meta, name: "coil-egress-leader" }, spec: { ...spec, holderIdentity: "a" } },
    ],
  };
  assert.equal(suiteStatus({ ...NONE, leases: held }).ready, false);
});

test("suiteStatus: links of the tunnel and uplinks, by the metrics of their programs", () => {
  const process = (program: string, pid: number) => ({
    ...{ program, flags: [], name: `process ${pid}`, pod: undefined, node: "", tag: undefined },
    ...{ isReady: true, reason: "", restarts: 0, health: undefined, metrics: undefined },
  });
  const sample = (name: string, value: number, labels = {}) => ({ name, value, labels });
  const konnectivity = (name: string, value: number) => sample(`konnectivity_network_proxy_${name}`, value);
  const samples: Readonly<Record<string, InstanceAnswer["samples"]>> = {
    "proxy-server": {
      value: [konnectivity("server_ready_backend_connections", 5), konnectivity("server_established_connections", 12)],
    },
    "proxy-agent": {
      value: [konnectivity("agent_open_server_connections", 1), konnectivity("agent_known_server_count", 2)],
    },
    "uplink-proxy": {
      value: [0, 1].map((failed) => sample("uplink_proxy_uplink_failed", failed, { uplink: `wan${failed}` })),
    },
  };
  const processes = Object.keys(samples).map(process);
  const answers = new Map(processes.map((one) => [instanceKey(one), { samples: samples[one.program] }]));
  const status = suiteStatus({ ...NONE, processes, answers });
  assert.deepEqual(
    status.tunnel.rows.map(({ program, text }) => `${program}: ${text}`),
    ["proxy-server: 5 agents, 12 connections", "proxy-agent: 1 of 2 servers"],
  );
  assert.deepEqual(
    status.uplinks.rows.map(({ uplink, works }) => [uplink, works]),
    [
      ["wan0", true],
      ["wan1", false],
    ],
  );
  assert.match(suiteStatusText(status), /^wan1 +failed +process 2$/m);
});

test("maxBlocksOf: a spec that cannot be read has no number, and ends no report", () => {
  assert.equal(maxBlocksOf({ blockSizeBits: 4, subnets: [{ ipv4: "10.0.0.0/24" }] }), 16);
  for (const spec of [{}, { subnets: null }, { blockSizeBits: 4, subnets: [{ ipv4: "10.0.0/24" }] }])
    assert.equal(maxBlocksOf(spec as never), undefined, JSON.stringify(spec));
});

test("instancesOf: every workload of the manifests is known, with the ports of its probes, and has a label that pods are found by", () => {
  const text = readFileSync(join(import.meta.dirname, "../../../../deploy/all.yaml"), "utf8");
  const found = parseAllDocuments(text).flatMap((document) => {
    const { kind, metadata, spec } = document.toJS();
    if (kind !== "DaemonSet" && kind !== "Deployment") return [];
    const { containers } = spec.template.spec;
    const own = { ...spec.template.metadata, namespace: metadata.namespace };
    const [instance, ...others] = instancesOf({ metadata: own, spec: spec.template.spec } as never);
    assert.deepEqual([others.length, containers.length], [0, 1], metadata.name);
    const { path, port } = containers[0].readinessProbe.httpGet;
    const ports: readonly { readonly name: string; readonly containerPort: number }[] = containers[0].ports ?? [];
    const wanted = typeof port === "number" ? port : ports.find(({ name }) => name === port)?.containerPort;
    if (path === "/readyz") assert.equal(instance?.health?.port, wanted, metadata.name);
    assert.ok(isFoundBy(spec.template.metadata.labels), metadata.name);
    return [instance?.program ?? ""];
  });
  assert.ok(found.length >= 8, found.join());
  for (const program of ["coild", "coil-ipam-controller", "service-proxy", "nic-agent"])
    assert.ok(found.includes(program), program);
});

test("suiteStatus: NetworkPolicies that nobody enforces are told, and are no reason not to be ready; without policies there is no line", () => {
  const instances = { value: instancesOf(pod("coild-a", "n1")) };
  const policies = { value: { policies: 3, enforcers: [], k3sNodes: 0 } };
  const status = suiteStatus({ ...NONE, instances, policies });
  assert.equal(status.ready, true);
  assert.match(suiteStatusText(status), /^NetworkPolicies, warning: 3 are there, and nobody enforces them/m);
  assert.doesNotMatch(suiteStatusText(suiteStatus({ ...NONE, instances })), /NetworkPolicies/);
  const { notRead } = suiteStatus({ ...NONE, instances, policies: { fault: "forbidden" } });
  assert.deepEqual(notRead[0], { what: "NetworkPolicies", why: "forbidden" });
});
