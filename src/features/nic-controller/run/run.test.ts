import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { type CreateOptions, type PortRequest, ProviderError } from "#cloud/vpc";
import { KubeError } from "#kube/client";
import { nodeLabelValue } from "#kube/nic";
import { portIdentity } from "../plan/identity.ts";
import { FakeCluster } from "../testing/fake-cluster.ts";
import { FakeVpc, type Fate } from "../testing/fake-vpc.ts";
import type { PodWish } from "../world.ts";
import { Collector } from "./collector.ts";
import { GuardedProvider } from "./guarded-provider.ts";

const uidOf = (at: number): string => `6f0e1c1a-0000-4000-8000-${at.toString(16).padStart(12, "0")}`;
const WISH: PodWish = { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0" }, { name: "eth1" }] };
const ONE: PodWish = { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0" }] };

function open() {
  const clock = new FakeClock();
  const vpc = new FakeVpc(clock);
  const cluster = new FakeCluster(clock, vpc);
  return { clock, vpc, cluster };
}

/** The ports of each pod, as many as there are. */
function portCounts(vpc: FakeVpc): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { deviceId } of vpc.ports.values()) counts[deviceId] = (counts[deviceId] ?? 0) + 1;
  return counts;
}

test("T-8: a claim goes from Pending to Active, and away with its pod", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  const phase = (): string | undefined => cluster.claims.get(uid)?.status?.phase;
  cluster.addPod(uid, WISH);
  await clock.advance(500);
  assert.equal(phase(), "Created");
  cluster.changePod(uid, { spec: { nodeName: "node-1" } });
  await clock.advance(500);
  assert.equal(phase(), "Plumbable");
  assert.equal(cluster.claims.get(uid)?.metadata.labels?.["isthmus.dev/node"], "node-1");
  cluster.tell(uid, "Plugged");
  await clock.advance(100);
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  // The report has begun looks every 250 ms.
  await clock.advance(700);
  assert.equal(phase(), "Active");
  const writes = cluster.statusWrites;
  await clock.advance(600_000);
  assert.equal(cluster.statusWrites, writes, "nothing is written while nothing changes");
  cluster.deletePod(uid);
  await clock.advance(1000);
  assert.deepEqual([cluster.claims.size, vpc.ports.size], [0, 0]);
  assert.deepEqual(
    cluster.events.map(({ reason }) => reason),
    ["PortCreated", "PortCreated", "PortDeleted", "PortDeleted"],
  );
});

test("T-8: a port that is plugged is looked at each 250 ms for two seconds, then rarer, until it is active", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(500);
  const before = vpc.calls["poll"] ?? 0;
  const looks = (): number => (vpc.calls["poll"] ?? 0) - before;
  cluster.tell(uid, "Plugged");
  await clock.advance(2000);
  assert.ok(looks() >= 7 && looks() <= 9, `${looks()} looks in 2 s`);
  const quick = looks();
  await clock.advance(10_000);
  // Pauses of 0.4, 0.6, 0.8, 1.3, 1.9 and then 2 s.
  assert.ok(looks() - quick >= 6 && looks() - quick <= 9, `${looks() - quick} looks in the next 10 s`);
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  await clock.advance(2500);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Active");
});

test("T-8: failures of the provider are in the status, with the time of the next attempt, and the phase stays", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  vpc.isAway = true;
  cluster.addPod(uid, ONE);
  await clock.advance(60_000);
  const { phase, nics } = cluster.claims.get(uid)?.status ?? assert.fail();
  assert.equal(phase, "Creating");
  assert.deepEqual([nics?.[0]?.state, nics?.[0]?.reason], ["InProgress", "ProviderUnavailable"]);
  assert.ok((nics?.[0]?.attempts ?? 0) >= 6 && (nics?.[0]?.attempts ?? 0) <= 9, `${nics?.[0]?.attempts} attempts`);
  vpc.isAway = false;
  await clock.advance(61_000);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Created");
});

test("a second port that cannot be deleted does not hold up its pod", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, ONE);
  await clock.advance(1000);
  const identity = portIdentity(uid, { cluster: "c1", namespace: "default", pod: "p", nic: "eth0" });
  const second = vpc.addUserPort();
  vpc.change(second, identity);
  vpc.held.add(second);
  await clock.advance(61_000);
  cluster.changePod(uid, { spec: { nodeName: "node-1" } });
  await clock.advance(5000);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Plumbable");
  vpc.held.clear();
  await clock.advance(61_000);
  assert.deepEqual([vpc.ports.size, cluster.duplicates], [1, 1]);
});

test("a node with a name that no label can have finds its claims by a part of it", async () => {
  const { clock, cluster, vpc } = open();
  using _ = cluster.start();
  const node = `ip-10-0-0-1.${"long-domain.".repeat(6)}example`;
  vpc.hosts.add(node);
  cluster.addPod(uidOf(1), ONE, node);
  cluster.addPod(uidOf(2), ONE);
  await clock.advance(500);
  cluster.changePod(uidOf(2), { spec: { nodeName: node } });
  await clock.advance(1000);
  for (const uid of [uidOf(1), uidOf(2)]) {
    const { metadata, status } = cluster.claims.get(uid) ?? assert.fail();
    const label = metadata.labels?.["isthmus.dev/node"] ?? "";
    assert.match(label, /^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/);
    assert.deepEqual([label, status?.phase, status?.nodeName], [nodeLabelValue(node), "Plumbable", node]);
  }
  assert.notEqual(nodeLabelValue(node), nodeLabelValue(`${node}s`));
});

test("a Node that is gone, or comes back without its annotation, moves no port of a pod that runs; others wait for it", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  cluster.policy = { hotplug: true };
  vpc.hosts.add("real-host");
  cluster.nodeAnnotations.set("node-1", { "isthmus.dev/provider-host": "real-host" });
  const [uid, young] = [uidOf(1), uidOf(2)];
  const shown = (one: string) => {
    const { phase, nics = [] } = cluster.claims.get(one)?.status ?? {};
    return [phase, ...nics.map(({ host }) => host)];
  };
  await running(bed, uid, ONE);
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  await clock.advance(5000);
  assert.deepEqual(shown(uid), ["Active", "real-host"]);
  const binds = vpc.calls["bind"];
  cluster.goneNodes.add("node-1");
  cluster.touch(uid);
  cluster.addPod(young, ONE, "node-1");
  await clock.advance(120_000);
  assert.deepEqual(
    [shown(uid), shown(young)],
    [
      ["Active", "real-host"],
      ["Created", ""],
    ],
  );
  assert.equal(vpc.calls["bind"], binds);
  // kubelet has registered it again, by its flags alone.
  cluster.goneNodes.clear();
  for (const annotations of [{}, { "isthmus.dev/provider-host": "" }]) {
    cluster.nodeAnnotations.set("node-1", annotations);
    for (const one of [uid, young]) cluster.touch(one);
    await clock.advance(120_000);
  }
  assert.deepEqual(
    [shown(uid), shown(young)],
    [
      ["Active", "real-host"],
      ["Plumbable", "node-1"],
    ],
  );
  const told = cluster.events.filter(({ reason }) => reason === "ProviderHostKept");
  assert.deepEqual(
    told.map(({ pod, type }) => [pod, type]),
    [["pod-0001", "Warning"]],
  );
  // A NIC that is added goes where the sandbox is.
  cluster.changeWish(uid, WISH);
  await clock.advance(2000);
  assert.deepEqual(shown(uid), ["Plumbable", "real-host", "real-host"]);
  // What somebody writes counts, as ever.
  vpc.hosts.add("other-host");
  cluster.nodeAnnotations.set("node-1", { "isthmus.dev/provider-host": "other-host" });
  cluster.touch(uid);
  await clock.advance(2000);
  assert.deepEqual(shown(uid).slice(1), ["other-host", "other-host"]);
});

test("a port whose device was lost with the sandbox is unbound and bound again, once, after a failover too; a new NIC is bound once", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  cluster.policy = { hotplug: true };
  const uid = uidOf(1);
  const lent = vpc.addUserPort();
  const nics = [{ name: "eth0" }, { name: "eth1", portID: lent }];
  const hostsOf = (id: string) => vpc.bound.flatMap(([port, host]) => (port === id ? [host] : []));
  const phase = (): string | undefined => cluster.claims.get(uid)?.status?.phase;
  let made = "";
  {
    using _ = cluster.start();
    await running(bed, uid, { kind: "wanted", vpc: "vpc-1", nics });
    for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
    await clock.advance(5000);
    made = [...vpc.ports.keys()].find((id) => id !== lent) ?? assert.fail();
    vpc.bound.splice(0);
    cluster.loseDevices(uid);
    // It is killed between the two.
    for (let ms = 0; ms < 1000 && hostsOf(made).length === 0; ms += 1) await clock.advance(1);
  }
  {
    using _ = cluster.start();
    await clock.advance(120_000);
  }
  using _ = cluster.start();
  await clock.advance(120_000);
  assert.equal(phase(), "Active", "the ports of this cloud are active all the time");
  for (const id of [made, lent]) assert.deepEqual(hostsOf(id).slice(-2), ["", "node-1"]);
  const before = vpc.bound.length;
  assert.ok(before <= 6, `${before} bindings`);
  cluster.changeWish(uid, { kind: "wanted", vpc: "vpc-1", nics: [...nics, { name: "eth2" }] });
  await clock.advance(2000);
  assert.deepEqual([vpc.ports.size, vpc.bound.length], [3, before], "it is bound as it is made");
  // A second loss.
  cluster.follow(uid);
  await clock.advance(5000);
  vpc.bound.splice(0);
  cluster.loseDevices(uid);
  cluster.touch(uid);
  await clock.advance(120_000);
  for (const id of vpc.ports.keys()) assert.deepEqual(hostsOf(id), ["", "node-1"]);
  assert.equal(phase(), "Plumbable");
});

test("a claim that was copied into another namespace takes no port of the pod that runs, nor of one that has run", async () => {
  for (const hasPod of [true, false]) {
    const { clock, vpc, cluster } = open();
    const uid = uidOf(1);
    const identity = portIdentity(uid, { cluster: "c1", namespace: "theirs", pod: "p", nic: "eth0" });
    const [made, moved, lent] = [vpc.addUserPort(), vpc.addUserPort(), vpc.addUserPort()];
    vpc.change(made, identity);
    vpc.change(moved, { ...identity, deviceId: "router-1" });
    if (hasPod) vpc.change(lent, { deviceId: uid, deviceOwner: "compute:isthmus" });
    const before = new Map(vpc.ports);
    cluster.addPod(uid, WISH, "node-1");
    const pod = cluster.pods.get(uid) ?? assert.fail();
    if (hasPod) cluster.pods.set(uid, { ...pod, metadata: { ...pod.metadata, namespace: "theirs" } });
    else cluster.pods.delete(uid);
    const nics = [
      { name: "eth0", state: "Ready", portID: made, mac: "fa:16:3e:00:00:01", createdByController: true },
      { name: "eth1", state: "Ready", portID: moved, mac: "fa:16:3e:00:00:02", createdByController: true },
      { name: "eth2", state: "Ready", portID: lent, mac: "fa:16:3e:00:00:03", createdByController: false },
    ] as const;
    cluster.claims.set(uid, {
      metadata: { name: uid, namespace: "default", uid: "copy", resourceVersion: "1", generation: 1 },
      spec: { podName: "p", podUID: uid, vpc: "vpc-1", provider: "neutron", nics: nics.map(({ name }) => ({ name })) },
      status: { phase: "Active", nics: [...nics] },
    });
    using _ = cluster.start();
    await clock.advance(120_000);
    assert.deepEqual(vpc.ports, before);
    assert.equal(cluster.claims.size, 0, "it ends, since its namespace has no such pod");
  }
});

test("a port of the pod's identity in another network, which anybody can make there, is not taken for the pod's", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  const identity = portIdentity(uid, { cluster: "c1", namespace: "default", pod: "p", nic: "eth0" });
  const trap = vpc.addUserPort();
  vpc.change(trap, {
    ...identity,
    networkId: "99999999-9999-4999-8999-999999999999",
    createdAt: "2000-01-01T00:00:00Z",
  });
  cluster.addPod(uid, ONE);
  await clock.advance(2000);
  const [nic] = cluster.claims.get(uid)?.status?.nics ?? [];
  assert.notEqual(nic?.portID, trap);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Created");
  assert.ok(vpc.ports.has(nic?.portID ?? ""));
});

test("hot-plug: a NIC that names the port of another NIC of its pod does not get it", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  cluster.policy = { hotplug: true };
  const uid = uidOf(1);
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(1000);
  const [port] = [...vpc.ports.keys()];
  const nics = [{ name: "eth0" }, { name: "eth1", portID: port ?? "" }];
  cluster.changeWish(uid, { kind: "wanted", vpc: "vpc-1", nics });
  await clock.advance(2000);
  const found = cluster.claims.get(uid)?.status?.nics?.map(({ name, reason }) => [name, reason]);
  assert.deepEqual(found, [
    ["eth0", undefined],
    ["eth1", "PortInUse"],
  ]);
  cluster.changeWish(uid, ONE);
  cluster.follow(uid);
  await clock.advance(2000);
  assert.equal(vpc.ports.get(port ?? "")?.deviceId, uid, "the port of eth0 stays");
});

test("T-8: a pod whose claim the API server refuses is told why, once, and is not tried again", async () => {
  const { clock, cluster } = open();
  using _ = cluster.start();
  cluster.refusal = new KubeError("invalid", "spec.nics[0].securityGroups: Too many");
  cluster.addPod(uidOf(1), ONE);
  await clock.advance(60_000);
  cluster.touch(uidOf(1));
  await clock.advance(60_000);
  assert.deepEqual(
    cluster.events.map(({ reason, note }) => [reason, note]),
    [["InvalidNics", "spec.nics[0].securityGroups: Too many"]],
  );
});

test("T-8: a port that goes down while its pod runs is told after 30 s, and is ready again when it is up", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(500);
  cluster.tell(uid, "Plugged");
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  await clock.advance(1000);
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "DOWN" });
  await clock.advance(150_000);
  const nic = cluster.claims.get(uid)?.status?.nics?.[0];
  assert.deepEqual([nic?.state, nic?.reason], ["InProgress", "PortDown"]);
  assert.ok(cluster.events.some(({ reason }) => reason === "PortDown"));
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  await clock.advance(70_000);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Active");
});

test("T-8: a port of a request that is done late is found within seconds, and the recorded one is kept", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  vpc.fate = () => ((vpc.calls["create"] ?? 0) === 1 ? "late" : "done");
  const uid = uidOf(1);
  cluster.addPod(uid, ONE);
  await clock.advance(2000);
  const recorded = cluster.claims.get(uid)?.status?.nics?.[0]?.portID;
  assert.deepEqual([...vpc.ports.keys()], [recorded]);
  // It comes after 5 s, and is seen within 5 s.
  await clock.advance(3100);
  assert.equal(vpc.ports.size, 2);
  await clock.advance(5200);
  assert.deepEqual([[...vpc.ports.keys()], cluster.duplicates], [[recorded], 1]);
});

test("T-8: a controller that is killed right after it has taken a user's port has stored what that port had", async () => {
  const { clock, vpc, cluster } = open();
  const lent = vpc.addUserPort();
  const uid = uidOf(1);
  {
    using _ = cluster.start();
    cluster.addPod(uid, { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0", portID: lent }] });
    for (let ms = 0; ms < 1000 && vpc.ports.get(lent)?.deviceId !== uid; ms += 1) await clock.advance(1);
    assert.equal(cluster.claims.get(uid)?.status?.nics?.[0]?.mac, undefined, "it has not recorded the rest");
  }
  using _ = cluster.start();
  await clock.advance(2000);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Created");
  cluster.deletePod(uid);
  await clock.advance(2000);
  const { deviceId, deviceOwner } = vpc.ports.get(lent) ?? assert.fail("the user's port was deleted");
  assert.deepEqual([deviceId, deviceOwner], ["", "their:own"]);
  // The request of the first leader may still be under way, for all that the second one knows.
  await clock.advance(75_000);
  assert.equal(cluster.claims.size, 0);
});

test("T-8: a request that takes a user's port and is done late is undone, also if the pod is gone by then", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const lent = vpc.addUserPort();
  vpc.fate = () => (vpc.calls["bind"] === 1 ? "late" : "done");
  cluster.addPod(uidOf(1), { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0", portID: lent }] });
  await clock.advance(100);
  cluster.deletePod(uidOf(1));
  await clock.advance(6000);
  assert.equal(vpc.ports.get(lent)?.deviceId, uidOf(1), "the request was done");
  assert.equal(cluster.claims.size, 1, "the claim has waited for it");
  await clock.advance(90_000);
  assert.deepEqual([vpc.ports.get(lent)?.deviceId, vpc.ports.get(lent)?.deviceOwner], ["", "their:own"]);
  assert.equal(cluster.claims.size, 0);
});

test("a leader whose cache has no pods yet, but their claims, releases no port of a pod that is there", async () => {
  const { clock, vpc, cluster } = open();
  const uid = uidOf(1);
  {
    using _ = cluster.start();
    cluster.addPod(uid, WISH, "node-1");
    await clock.advance(500);
    cluster.follow(uid);
    await clock.advance(500);
  }
  const [claim, ports] = [cluster.claims.get(uid), new Map(vpc.ports)];
  assert.equal(ports.size, 2);
  cluster.unseen.add(uid);
  using _ = cluster.start();
  await clock.advance(120_000);
  assert.deepEqual([vpc.calls["delete"], cluster.claims.get(uid)?.metadata], [undefined, claim?.metadata]);
  assert.deepEqual(vpc.ports, ports);
  // A failure of the API server is no answer.
  cluster.podFailure = new KubeError("unreachable", "no answer");
  cluster.deletePod(uid);
  await clock.advance(60_000);
  assert.equal(vpc.ports.size, 2);
  cluster.podFailure = undefined;
  await clock.advance(60_000);
  assert.deepEqual([vpc.ports.size, cluster.claims.size], [0, 0]);
});

test("hot-plug: a leader whose cache has a pod as it was before neither takes NICs away that were added since, nor gives them other groups", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  const uid = uidOf(1);
  {
    using _ = cluster.start();
    await running(bed, uid, ONE);
    const former = cluster.pods.get(uid) ?? assert.fail();
    cluster.changeWish(uid, { ...ONE, nics: [{ name: "eth0", securityGroups: ["web"] }, { name: "eth1" }] });
    await clock.advance(500);
    cluster.follow(uid);
    await clock.advance(500);
    cluster.former.set(uid, former);
  }
  const [{ spec }, ports] = [cluster.claims.get(uid) ?? assert.fail(), new Map(vpc.ports)];
  assert.equal(spec.nics.length, 2);
  using _ = cluster.start();
  await clock.advance(120_000);
  assert.deepEqual([cluster.claims.get(uid)?.spec, vpc.ports], [spec, ports]);
  cluster.former.clear();
  cluster.changeWish(uid, ONE);
  await clock.advance(500);
  assert.equal(cluster.claims.get(uid)?.spec.nics.length, 1, "what the pod gives up now is given up");
});

test("a pod of the claim's name with another uid is not the claim's", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  cluster.addPod(uidOf(1), ONE, "node-1");
  await clock.advance(500);
  const { metadata } = cluster.pods.get(uidOf(1)) ?? assert.fail();
  cluster.deletePod(uidOf(1));
  cluster.addPod(uidOf(2), ONE, "node-1");
  const other = cluster.pods.get(uidOf(2)) ?? assert.fail();
  cluster.pods.set(uidOf(2), { ...other, metadata: { ...other.metadata, name: metadata.name } });
  await clock.advance(2000);
  assert.deepEqual([[...cluster.claims.keys()], vpc.ports.size], [[uidOf(2)], 1]);
});

test("a claim that is deleted keeps its ports while the cache does not know yet that its pod has a node", async () => {
  const { clock, vpc, cluster } = open();
  const uid = uidOf(1);
  {
    using _ = cluster.start();
    cluster.addPod(uid, ONE, "node-1");
    await clock.advance(500);
    cluster.follow(uid);
    await clock.advance(500);
  }
  const before = new Map(vpc.ports);
  cluster.changePod(uid, { spec: {} });
  const claim = cluster.claims.get(uid) ?? assert.fail();
  const deletionTimestamp = new Date(clock.now()).toISOString();
  cluster.claims.set(uid, { ...claim, metadata: { ...claim.metadata, deletionTimestamp } });
  using _ = cluster.start();
  await clock.advance(120_000);
  assert.deepEqual(vpc.ports, before);
});

test("a pod that its node has refused, so that nothing was ever plugged, loses its ports when no ADD can be at work any more", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, WISH, "node-1");
  await clock.advance(1000);
  cluster.changePod(uid, { spec: { nodeName: "node-1" }, status: { phase: "Failed" } });
  await clock.advance(80_000);
  assert.equal(vpc.ports.size, 2, "an ADD may still be at work");
  await clock.advance(12_000);
  assert.deepEqual([vpc.ports.size, cluster.claims.size, cluster.pods.size], [0, 0, 1]);
});

test("before ports are released, their claim is being deleted, so that no ADD plugs them any more", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(1000);
  const [port = ""] = [...vpc.ports.keys()];
  vpc.held.add(port);
  cluster.changePod(uid, { spec: { nodeName: "node-1" }, status: { phase: "Failed" } });
  await clock.advance(95_000);
  const { metadata, status } = cluster.claims.get(uid) ?? assert.fail();
  assert.deepEqual([vpc.ports.size, status?.phase], [1, "Releasing"]);
  assert.notEqual(metadata.deletionTimestamp, undefined);
});

test("a release that fails is tried again at its time, and not at each write of its own failure", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(1000);
  vpc.held.add([...vpc.ports.keys()][0] ?? "");
  const tries = (): number => vpc.calls["delete"] ?? 0;
  const start = clock.now();
  const at: number[] = [];
  cluster.deletePod(uid);
  for (let ms = 0; ms < 230_000; ms += 1000) {
    const before = tries();
    await clock.advance(1000);
    // Whatever wakes it.
    cluster.touch(uid);
    if (tries() > before) at.push(Math.floor((clock.now() - start) / 1000) - 1);
  }
  // The pause is that of a slow failure, which grows: 30, 60, 120 s.
  assert.deepEqual(at, [0, 30, 90, 210]);
  assert.ok(cluster.statusWrites <= 20, `${cluster.statusWrites} writes`);
  vpc.held.clear();
  await clock.advance(241_000);
  assert.deepEqual([vpc.ports.size, cluster.claims.size], [0, 0]);
});

test("a release that fails for several ports of a pod has the pause of one failure", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  const nics = ["eth0", "eth1", "eth2", "eth3"].map((name) => ({ name }));
  cluster.addPod(uid, { kind: "wanted", vpc: "vpc-1", nics }, "node-1");
  await clock.advance(1000);
  for (const id of vpc.ports.keys()) vpc.held.add(id);
  cluster.deletePod(uid);
  await clock.advance(1000);
  assert.deepEqual(
    cluster.claims.get(uid)?.status?.nics?.map(({ attempts }) => attempts),
    [1, 1, 1, 1],
  );
  vpc.held.clear();
  await clock.advance(36_000);
  assert.deepEqual([vpc.ports.size, cluster.claims.size], [0, 0]);
});

test("a release that the provider asks to be tried later is tried later; those of other pods are not held up", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  for (let at = 1; at <= 20; at += 1) cluster.addPod(uidOf(at), ONE, "node-1");
  await clock.advance(3000);
  const busy = { retry: "fast", retryAfterMs: 120_000 } as const;
  vpc.deleteFault = new ProviderError("ProviderUnavailable", "too many requests", busy);
  for (let at = 1; at <= 20; at += 1) cluster.deletePod(uidOf(at));
  await clock.advance(100_000);
  assert.equal(vpc.calls["delete"], 20);
  vpc.deleteFault = undefined;
  cluster.addPod(uidOf(21), ONE, "node-1");
  await clock.advance(2000);
  cluster.deletePod(uidOf(21));
  await clock.advance(2000);
  assert.equal(cluster.claims.has(uidOf(21)), false);
  await clock.advance(20_000);
  assert.deepEqual([vpc.ports.size, cluster.claims.size], [0, 0]);
});

test("a port in a subnet that is younger than what is known of the VPC has that subnet's prefix, gateway and routes; a user's port too", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  cluster.addPod(uidOf(1), ONE);
  await clock.advance(5000);
  const [first] = vpc.subnets;
  const routes = [{ dst: "192.0.2.0/24", via: "10.1.0.2" }];
  const young = { ...(first ?? assert.fail()), id: "33333333-3333-4333-8333-333333333333", name: "subnet-2" };
  vpc.subnets.push({ ...young, cidr: "10.0.0.0/16", gateway: "10.0.0.9", routes });
  const lent = vpc.addUserPort();
  cluster.addPod(uidOf(2), ONE);
  cluster.addPod(uidOf(3), { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0", portID: lent }] });
  await clock.advance(1000);
  const shown = (at: number) => {
    const { ips, routes: has } = cluster.claims.get(uidOf(at))?.status?.nics?.[0] ?? {};
    return { subnet: ips?.[0]?.subnetID, prefix: ips?.[0]?.prefixLength, gateway: ips?.[0]?.gateway, routes: has };
  };
  const wanted = { subnet: young.id, prefix: 16, gateway: "10.0.0.9", routes };
  assert.deepEqual([shown(2), shown(3)], [wanted, wanted]);
});

test("of an address of IPv6 that the cloud adds by itself only a NIC knows that wants IPv6, and a user's port keeps all", async () => {
  const { clock, vpc, cluster } = open();
  const [first] = vpc.subnets;
  const auto = { ...(first ?? assert.fail()), id: "66666666-6666-4666-8666-666666666666", name: "auto" };
  vpc.subnets.unshift({ ...auto, cidr: "2001:db8::/64", ipVersion: 6, gateway: "2001:db8::1" });
  vpc.extra = [{ subnetId: auto.id, ip: "2001:db8::a" }];
  const lent = vpc.addUserPort();
  const wishes = [
    { name: "eth0" },
    { name: "eth1", ipv6Enabled: false },
    { name: "eth2", subnet: "subnet-1" },
    { name: "eth3", ipv6Enabled: true },
    { name: "eth4", subnet: "auto" },
    { name: "eth5", subnet: "auto", ip: "2001:db8::a" },
    { name: "eth6", portID: lent },
  ];
  const families = () =>
    cluster.claims
      .get(uidOf(1))
      ?.status?.nics?.map(({ ips = [] }) => ips.map(({ ip }) => (ip.includes(":") ? 6 : 4)).join(""));
  // Ports that are adopted, since the answer was lost, and ports that are made.
  for (const fate of ["answer-lost", "done"] as const) {
    using _ = cluster.start();
    let writes = 0;
    vpc.fate = () => {
      writes += 1;
      return writes === 1 ? fate : "done";
    };
    cluster.addPod(uidOf(1), { kind: "wanted", vpc: "vpc-1", nics: wishes });
    await clock.advance(3000);
    assert.deepEqual(families(), ["4", "4", "4", "46", "46", "46", "46"]);
    assert.equal(cluster.claims.get(uidOf(1))?.status?.nics?.[0]?.subnetID, first?.id);
    cluster.deletePod(uidOf(1));
    await clock.advance(75_000);
  }
});

test("a port without an address that a request without an answer has left is deleted and is no NIC; one with an address is made once there is a subnet", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const subnets = vpc.subnets.splice(0);
  let writes = 0;
  vpc.fate = () => {
    writes += 1;
    vpc.keepsEmpty = writes === 1;
    return writes === 1 ? "answer-lost" : "done";
  };
  const uid = uidOf(1);
  const shown = () => {
    const { reason, portID, ips } = cluster.claims.get(uid)?.status?.nics?.[0] ?? {};
    return [vpc.ports.size, reason, portID, ips];
  };
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(300);
  assert.equal(vpc.ports.size, 1, "the request was done");
  // What cannot be deleted yet is not taken for the NIC's either.
  const [left = ""] = vpc.ports.keys();
  vpc.held.add(left);
  await clock.advance(5000);
  assert.deepEqual(shown(), [1, "DeleteConflict", undefined, undefined]);
  // Somebody else deletes it meanwhile.
  const looks = vpc.calls["find"] ?? 0;
  vpc.ports.delete(left);
  await clock.advance(40_000);
  assert.deepEqual(shown(), [0, "NoAddress", undefined, undefined]);
  assert.ok((vpc.calls["find"] ?? 0) - looks <= 2, `${vpc.calls["find"]} look-ups`);
  vpc.subnets.push(...subnets);
  await clock.advance(130_000);
  assert.deepEqual([vpc.ports.size, cluster.claims.get(uid)?.status?.phase], [1, "Plumbable"]);
});

test("a port without an address that is found is deleted, and its NIC says why it has none", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  vpc.subnets.splice(0);
  let writes = 0;
  vpc.fate = () => {
    writes += 1;
    vpc.keepsEmpty = writes === 1;
    return writes === 1 ? "answer-lost" : "done";
  };
  cluster.addPod(uidOf(1), ONE, "node-1");
  await clock.advance(5000);
  assert.deepEqual([vpc.ports.size, vpc.calls["delete"], vpc.calls["create"]], [0, 1, 1]);
  assert.equal(cluster.claims.get(uidOf(1))?.status?.nics?.[0]?.reason, "NoAddress");
});

test("a port whose subnet nobody knows is no NIC before that is known, and no second port is made", async () => {
  const { clock, vpc, cluster } = open();
  const restart = (): Disposable => cluster.start();
  const hidden = "44444444-4444-4444-8444-444444444444";
  vpc.addressesIn = hidden;
  const uid = uidOf(1);
  const nic = () => cluster.claims.get(uid)?.status?.nics?.[0];
  {
    using _ = restart();
    cluster.addPod(uid, WISH, "node-1");
    await clock.advance(30_000);
    assert.deepEqual([vpc.ports.size, nic()?.portID, nic()?.reason], [2, undefined, "SubnetNotFound"]);
    assert.equal(nic()?.state, "InProgress");
  }
  // The next leader finds the ports, and knows as little.
  using _ = restart();
  await clock.advance(30_000);
  assert.deepEqual([vpc.ports.size, nic()?.portID, nic()?.reason], [2, undefined, "SubnetNotFound"]);
  const [first] = vpc.subnets;
  vpc.subnets.push({ ...(first ?? assert.fail()), id: hidden, name: "late", cidr: "10.0.0.0/20" });
  await clock.advance(130_000);
  assert.deepEqual([vpc.ports.size, nic()?.ips?.[0]?.prefixLength], [2, 20]);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Plumbable");
});

test("a subnet that is made just now is found by its name, and asserted of a user's port", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  cluster.addPod(uidOf(1), ONE);
  await clock.advance(5000);
  vpc.subnets.push({
    ...(vpc.subnets[0] ?? assert.fail()),
    id: "33333333-3333-4333-8333-333333333333",
    name: "subnet-2",
  });
  vpc.onCreate = (requests) => {
    for (const { wish, vpc: known } of requests)
      assert.ok(wish.subnet === undefined || known.subnets.some(({ name }) => name === wish.subnet));
  };
  const lent = vpc.addUserPort();
  cluster.addPod(uidOf(2), { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0", subnet: "subnet-2" }] });
  cluster.addPod(uidOf(3), {
    kind: "wanted",
    vpc: "vpc-1",
    nics: [{ name: "eth0", portID: lent, subnet: "subnet-2" }],
  });
  await clock.advance(1000);
  assert.deepEqual(
    [2, 3].map((at) => cluster.claims.get(uidOf(at))?.status?.nics?.[0]?.reason),
    [undefined, undefined],
  );
  // One that is not there costs a look each second at most.
  const before = vpc.calls["resolve"] ?? 0;
  for (let at = 10; at < 60; at += 1)
    cluster.addPod(uidOf(at), { kind: "wanted", vpc: "vpc-1", nics: [{ name: "eth0", subnet: "none" }] });
  vpc.onCreate = () => undefined;
  await clock.advance(1000);
  assert.ok((vpc.calls["resolve"] ?? 0) - before <= 100, `${vpc.calls["resolve"]} calls`);
});

test("a claim that somebody deletes before its pod is plugged is made anew once its node tells that it has nothing", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const uid = uidOf(1);
  cluster.addPod(uid, ONE, "node-1");
  await clock.advance(1000);
  const claim = cluster.claims.get(uid) ?? assert.fail();
  const [before = ""] = [...vpc.ports.keys()];
  const deletionTimestamp = new Date(clock.now()).toISOString();
  cluster.claims.set(uid, { ...claim, metadata: { ...claim.metadata, deletionTimestamp } });
  cluster.touch(uid);
  await clock.advance(200_000);
  assert.ok(vpc.ports.has(before));
  cluster.tell(uid, "Unplugged");
  await clock.advance(1000);
  assert.deepEqual([vpc.ports.size, vpc.ports.has(before)], [1, false]);
  assert.deepEqual(cluster.claims.get(uid)?.status?.phase, "Plumbable");
});

/** A pod that runs with NICs, and what its user wants by now. */
async function running({ cluster, clock }: ReturnType<typeof open>, uid: string, wish: PodWish): Promise<void> {
  cluster.addPod(uid, wish, "node-1");
  await clock.advance(500);
  cluster.changePod(uid, { status: { phase: "Running" } });
  cluster.follow(uid);
  await clock.advance(500);
}

test("hot-plug: a NIC that is added has its port bound; one that is removed keeps it until the node has unplugged it", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  const uid = uidOf(1);
  const names = (): readonly string[] => (cluster.claims.get(uid)?.status?.nics ?? []).map(({ name }) => name);
  await running(bed, uid, ONE);
  cluster.changeWish(uid, WISH);
  await clock.advance(500);
  const claim = cluster.claims.get(uid) ?? assert.fail();
  assert.deepEqual([claim.metadata.generation, claim.spec.nics], [2, [{ name: "eth0" }, { name: "eth1" }]]);
  assert.deepEqual([vpc.ports.size, claim.status?.nics?.[1]?.host, claim.status?.phase], [2, "node-1", "Plumbable"]);
  cluster.follow(uid);
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  await clock.advance(700);
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Active");
  cluster.changeWish(uid, ONE);
  await clock.advance(10_000);
  assert.deepEqual([vpc.ports.size, names()], [2, ["eth0", "eth1"]], "the node has it still");
  assert.equal(cluster.claims.get(uid)?.status?.phase, "Active", "it is no NIC of the pod any more");
  // A report of the claim before is none.
  cluster.follow(uid);
  await clock.advance(1000);
  assert.deepEqual([vpc.ports.size, names()], [1, ["eth0"]]);
  assert.deepEqual(
    cluster.events.filter(({ reason }) => reason === "PortDeleted").map(({ note }) => note.slice(0, 9)),
    ["eth1: por"],
  );
});

test("hot-plug: while a provider is away, also for a new leader, a NIC that waits for its port leaves those in use as they are", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  const uid = uidOf(1);
  const shown = () => cluster.claims.get(uid)?.status?.nics?.map(({ name, state, reason }) => [name, state, reason]);
  const wanted = [
    ["eth0", "Ready", undefined],
    ["eth1", "InProgress", "ProviderUnavailable"],
  ];
  {
    using _ = cluster.start();
    await running(bed, uid, ONE);
    for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
    await clock.advance(5000);
    vpc.fate = () => {
      vpc.isAway = true;
      return "request-lost";
    };
    cluster.changeWish(uid, WISH);
    await clock.advance(30_000);
    assert.deepEqual(shown(), wanted);
  }
  using _ = cluster.start();
  await clock.advance(30_000);
  assert.deepEqual(shown(), wanted);
  vpc.isAway = false;
  vpc.fate = () => "done";
  await clock.advance(70_000);
  assert.deepEqual(shown()?.[1]?.[2], undefined);
  assert.equal(vpc.ports.size, 2);
});

test("hot-plug: a NIC that is wanted with another address is unplugged and released before its new port is made", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  const uid = uidOf(1);
  await running(bed, uid, WISH);
  const [, before] = [...vpc.ports.keys()];
  cluster.changeWish(uid, { ...ONE, nics: [{ name: "eth0" }, { name: "eth1", subnet: "subnet-1" }] });
  await clock.advance(5000);
  assert.deepEqual([...vpc.ports.keys()].length, 2);
  cluster.follow(uid);
  await clock.advance(1000);
  const { spec, status } = cluster.claims.get(uid) ?? assert.fail();
  assert.deepEqual(spec.nics, [{ name: "eth0" }, { name: "eth1", subnet: "subnet-1" }]);
  assert.ok(before !== undefined && !vpc.ports.has(before), "the former port is gone");
  assert.deepEqual([vpc.ports.size, status?.nics?.length], [2, 2]);
});

test("hot-plug: a user's port is given back as it was, and another pod can have it", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  const lent = vpc.addUserPort();
  const mine: PodWish = { ...ONE, nics: [{ name: "eth0" }, { name: "eth1", portID: lent }] };
  await running(bed, uidOf(1), ONE);
  await running(bed, uidOf(2), ONE);
  cluster.changeWish(uidOf(1), mine);
  await clock.advance(500);
  assert.equal(vpc.ports.get(lent)?.deviceId, uidOf(1));
  cluster.follow(uidOf(1));
  cluster.changeWish(uidOf(1), ONE);
  cluster.changeWish(uidOf(2), mine);
  await clock.advance(500);
  assert.equal(cluster.claims.get(uidOf(2))?.status?.nics?.[1]?.reason, "PortInUse");
  cluster.follow(uidOf(1));
  await clock.advance(1000);
  assert.equal(vpc.ports.get(lent)?.deviceId, uidOf(2));
  cluster.deletePod(uidOf(2));
  await clock.advance(1000);
  const { deviceId, deviceOwner } = vpc.ports.get(lent) ?? assert.fail();
  assert.deepEqual([deviceId, deviceOwner], ["", "their:own"]);
});

test("hot-plug: on a node that is lost, and for a pod without a node, nobody is waited for", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  cluster.addPod(uidOf(1), WISH);
  await clock.advance(500);
  cluster.changeWish(uidOf(1), ONE);
  await clock.advance(500);
  assert.deepEqual([vpc.ports.size, cluster.claims.get(uidOf(1))?.spec.nics.length], [1, 1]);
  await running(bed, uidOf(2), WISH);
  cluster.changeWish(uidOf(2), ONE);
  await clock.advance(120_000);
  assert.equal(vpc.ports.size, 3);
  cluster.lostNodes = true;
  await clock.advance(61_000);
  assert.equal(vpc.ports.size, 2);
});

test("hot-plug: above the quota, or against the policy, a claim keeps its NICs, and the pod is told once; what it gives up goes", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  cluster.policy = { tenants: [{ name: "blue", selector: {}, maxPorts: 3 }] };
  await running(bed, uidOf(1), WISH);
  await running(bed, uidOf(2), ONE);
  cluster.changeWish(uidOf(2), { ...ONE, nics: [{ name: "eth0" }, { name: "eth1" }] });
  await clock.advance(100_000);
  assert.equal(vpc.ports.size, 3);
  const told = cluster.events.filter(({ reason }) => reason === "NicsRefused").map(({ note }) => note);
  assert.deepEqual(told, ['tenant "blue" would use 4 ports of 3']);
  cluster.changeWish(uidOf(1), ONE);
  await clock.advance(500);
  cluster.follow(uidOf(1));
  await clock.advance(1000);
  assert.equal(cluster.claims.get(uidOf(2))?.spec.nics.length, 2, "what was given back goes to the one who waits");
  cluster.policy = { hotplug: false };
  cluster.changeWish(uidOf(1), WISH);
  await clock.advance(1000);
  assert.equal(cluster.claims.get(uidOf(1))?.spec.nics.length, 1);
  assert.match(cluster.events.at(-1)?.note ?? "", /NICs are immutable/);
});

test("hot-plug: two pods that grow at the same moment do not exceed the quota together", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  cluster.policy = { tenants: [{ name: "blue", selector: {}, maxPorts: 3 }] };
  await running(bed, uidOf(1), ONE);
  await running(bed, uidOf(2), ONE);
  cluster.changeWish(uidOf(1), WISH);
  cluster.changeWish(uidOf(2), WISH);
  await clock.advance(100_000);
  assert.equal(vpc.ports.size, 3);
});

test("scheduling gate: a pod may get its node when all its ports are made, and not before; one that gets no ports at once", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const isGated = (at: number): boolean | undefined => cluster.pods.get(uidOf(at))?.spec.isGated;
  const gated = (at: number, wish: PodWish): void => {
    cluster.addPod(uidOf(at), wish);
    cluster.changePod(uidOf(at), { spec: { isGated: true } });
  };
  vpc.isAway = true;
  gated(1, WISH);
  await clock.advance(30_000);
  assert.equal(isGated(1), true);
  vpc.isAway = false;
  await clock.advance(61_000);
  assert.deepEqual([isGated(1), cluster.claims.get(uidOf(1))?.status?.phase], [false, "Created"]);
  // The second NIC has no port, and says why.
  gated(2, { ...ONE, nics: [{ name: "eth0" }, { name: "eth1", portID: "a2815656-76f7-46d4-9d11-057063db1a14" }] });
  await clock.advance(1000);
  assert.deepEqual([isGated(2), cluster.claims.get(uidOf(2))?.status?.phase], [true, "Failed"]);
  assert.ok(cluster.events.some(({ reason, note }) => reason === "PortNotFound" && note.startsWith("eth1")));
  gated(3, { kind: "none" });
  gated(4, { kind: "host-network" });
  gated(5, { kind: "faulty", faults: [{ field: "vpc", message: "Required value" }] });
  await clock.advance(1000);
  assert.deepEqual([isGated(3), isGated(4), isGated(5)], [false, false, true]);
  assert.ok(cluster.events.some(({ reason }) => reason === "InvalidNics"));
});

test("T-39: security groups that change on a running pod are those of its port; those that do not exist leave it as it is", async () => {
  const bed = open();
  const { clock, vpc, cluster } = bed;
  using _ = cluster.start();
  const uid = uidOf(1);
  await running(bed, uid, ONE);
  for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
  await clock.advance(2000);
  const groups = (): readonly string[] | undefined => [...vpc.ports.values()][0]?.securityGroups;
  const want = async (...securityGroups: string[]): Promise<void> => {
    cluster.changeWish(uid, { ...ONE, nics: [{ name: "eth0", securityGroups, tag: "t" }] });
    await clock.advance(500);
  };
  await want("web", "db");
  const nic = cluster.claims.get(uid)?.status?.nics?.[0];
  assert.deepEqual([groups(), nic?.tag, nic?.securityGroups], [["web", "db"], "t", ["web", "db"]]);
  await want("no-such-group");
  const kept = cluster.claims.get(uid)?.status?.nics?.[0];
  assert.deepEqual([groups(), kept?.state, kept?.reason], [["web", "db"], "Ready", "SecurityGroupNotFound"]);
  assert.match(cluster.events.at(-1)?.note ?? "", /keeps its security groups/);
  await want("web");
  const after = cluster.claims.get(uid)?.status?.nics?.[0];
  assert.deepEqual([groups(), after?.state, after?.reason], [["web"], "Ready", undefined]);
  assert.equal(vpc.calls["regroup"], 3);
});

test("T-28: a new leader takes over 1,000 claims by lists of fifty, and asks for no single port", async () => {
  const { clock, vpc, cluster } = open();
  const uids = Array.from({ length: 1000 }, (_, at) => uidOf(at));
  {
    using _ = cluster.start();
    for (const uid of uids) cluster.addPod(uid, ONE, "node-1");
    await clock.advance(120_000);
    for (const uid of uids) cluster.tell(uid, "Plugged");
    for (const id of vpc.ports.keys()) vpc.change(id, { status: "ACTIVE" });
    await clock.advance(60_000);
    assert.ok([...cluster.claims.values()].every(({ status }) => status?.phase === "Active"));
    // Bulks were full.
    assert.ok((vpc.calls["create"] ?? 0) <= 25, `${vpc.calls["create"]} requests`);
  }
  for (const kind of Object.keys(vpc.calls)) vpc.calls[kind] = 0;
  cluster.statusWrites = 0;
  using _ = cluster.start();
  await clock.advance(10_000);
  const polls = vpc.calls["poll"] ?? 0;
  // The first of them were looked at while others were still read.
  assert.ok(polls >= 20 && polls <= 22, `${polls} lists`);
  assert.deepEqual(vpc.calls, { resolve: 0, find: 0, create: 0, poll: polls });
  await clock.advance(60_000);
  assert.ok((vpc.calls["poll"] ?? 0) <= polls + 22, `${vpc.calls["poll"]} lists`);
  assert.equal(cluster.statusWrites, 0);
});

function isOver(pod: { readonly status: { readonly phase?: string | undefined } } | undefined): boolean {
  return pod?.status.phase === "Succeeded" || pod?.status.phase === "Failed";
}

/** An event in the cluster or in the cloud. */
type Op =
  | {
      readonly do: "add";
      readonly pod: number;
      readonly lent: boolean;
      readonly nics: 1 | 2;
      readonly scheduled: boolean;
    }
  | { readonly do: "schedule" | "delete" | "end" | "fail" | "unplug" | "plug"; readonly pod: number }
  | {
      readonly do: "want";
      readonly pod: number;
      /** The second NIC: none, plain, with a group, with another address. */
      readonly second: "none" | "plain" | "group" | "subnet" | "lent";
    }
  | { readonly do: "follow"; readonly pod: number }
  | { readonly do: "lose-port"; readonly at: number }
  | { readonly do: "restart" }
  | { readonly do: "away"; readonly isAway: boolean }
  | { readonly do: "wait"; readonly ms: number };

const pod = fc.integer({ min: 0, max: 2 });
const add = fc.record({
  do: fc.constant("add" as const),
  pod,
  lent: fc.boolean(),
  nics: fc.constantFrom(1 as const, 2 as const),
  scheduled: fc.boolean(),
});
const change = fc.record({
  do: fc.constantFrom("schedule" as const, "end" as const, "fail" as const, "unplug" as const, "plug" as const),
  pod,
});
/** The second NIC of a pod. */
const SECONDS = (lent: string) => ({
  none: [],
  plain: [{ name: "eth1" }],
  group: [{ name: "eth1", securityGroups: ["web"] }],
  subnet: [{ name: "eth1", subnet: "subnet-1" }],
  lent: [{ name: "eth1", portID: lent }],
});
/** Moments of requests, of pauses after failures, and of looks. */
const ms = fc.oneof(
  fc.integer({ min: 1, max: 80 }),
  fc.integer({ min: 80, max: 1500 }),
  fc.integer({ min: 1500, max: 20_000 }),
);
const op: fc.Arbitrary<Op> = fc.oneof(
  { weight: 5, arbitrary: add },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("delete" as const), pod }) },
  { weight: 4, arbitrary: change },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("want" as const),
      pod,
      second: fc.constantFrom("none" as const, "plain" as const, "group" as const, "subnet" as const, "lent" as const),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("follow" as const), pod }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("lose-port" as const), at: fc.nat(9) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("restart" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("away" as const), isAway: fc.boolean() }) },
  { weight: 9, arbitrary: fc.record({ do: fc.constant("wait" as const), ms }) },
);
const fatesOf = (...kinds: readonly Fate[]) => fc.array(fc.constantFrom(...kinds), { maxLength: 20 });
const fates = fc.oneof(
  fatesOf("done", "request-lost", "answer-lost"),
  fatesOf("done", "done", "request-lost", "answer-lost", "late"),
);
test("T-8: whatever happens to pods, requests and controllers, in the end each NIC has one port, others have none, and users' ports are as they were", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(op, { maxLength: 30 }), fates, async (ops, given) => {
      const { clock, vpc, cluster } = open();
      const left = [...given];
      vpc.fate = () => left.shift() ?? "done";
      vpc.onCreate = (requests) => {
        for (const { identity } of requests)
          assert.ok(cluster.claims.has(identity.deviceId), "no port without a stored claim");
      };
      const lent = vpc.addUserPort();
      let count = 0;
      const uids = new Map<number, string>();
      let running = cluster.start();
      for (const one of ops) {
        switch (one.do) {
          case "add": {
            if (uids.has(one.pod)) break;
            count += 1;
            const uid = uidOf(count);
            uids.set(one.pod, uid);
            const nics = [{ name: "eth0", ...(one.lent ? { portID: lent } : {}) }, { name: "eth1" }].slice(0, one.nics);
            cluster.addPod(uid, { kind: "wanted", vpc: "vpc-1", nics }, one.scheduled ? "node-1" : undefined);
            break;
          }
          case "schedule":
            cluster.changePod(uids.get(one.pod) ?? "", { spec: { nodeName: "node-1" } });
            break;
          case "delete":
            cluster.deletePod(uids.get(one.pod) ?? "");
            uids.delete(one.pod);
            break;
          case "end":
            cluster.changePod(uids.get(one.pod) ?? "", { status: { phase: "Succeeded" } });
            break;
          case "fail":
            // Its node has refused it: it is on a node, and nothing was plugged.
            cluster.changePod(uids.get(one.pod) ?? "", { spec: { nodeName: "node-1" }, status: { phase: "Failed" } });
            break;
          case "plug":
          case "unplug":
            cluster.tell(uids.get(one.pod) ?? "", one.do === "plug" ? "Plugged" : "Unplugged");
            break;
          case "want": {
            const uid = uids.get(one.pod) ?? "";
            const { wish } = cluster.pods.get(uid) ?? {};
            if (wish?.kind !== "wanted") break;
            const first = wish.nics.slice(0, 1);
            // No pod may name a port twice.
            const second = one.second === "lent" && first[0]?.portID !== undefined ? "plain" : one.second;
            cluster.changeWish(uid, { ...wish, nics: [...first, ...SECONDS(lent)[second]] });
            break;
          }
          case "follow":
            cluster.follow(uids.get(one.pod) ?? "");
            break;
          case "lose-port": {
            const id = [...vpc.ports.keys()].filter((port) => port !== lent)[one.at];
            if (id !== undefined) vpc.ports.delete(id);
            break;
          }
          case "restart":
            running[Symbol.dispose]();
            running = cluster.start();
            break;
          case "away":
            vpc.isAway = one.isAway;
            break;
          case "wait":
            await clock.advance(one.ms);
        }
      }
      vpc.isAway = false;
      await clock.advance(400_000);
      left.length = 0;
      // Agents of nodes come to rest too: they tell of each claim whose NICs have changed.
      for (let round = 0; round < 2; round += 1) {
        for (const uid of uids.values()) {
          const hasEnded = isOver(cluster.pods.get(uid));
          const { metadata, status } = cluster.claims.get(uid) ?? {};
          const isTold = status?.plugged !== undefined || (metadata?.generation ?? 1) > 1;
          if (!hasEnded && isTold) cluster.follow(uid);
        }
        await clock.advance(400_000);
      }
      // Without a request that is done late there is no second port, unless a controller was killed while one was under way.
      const isPunctual = !given.includes("late") && !ops.some((one) => one.do === "restart");
      if (isPunctual) assert.equal(cluster.duplicates, 0);
      if (isPunctual) {
        for (const { deviceId } of vpc.ports.values()) {
          assert.ok(deviceId === "" || cluster.claims.has(deviceId), "what is released is released at once");
        }
      }
      // What came late is collected.
      for (let pass = 0; pass < 2; pass += 1) {
        await clock.advance(1_000_000);
        const passed = running.collector.pass(new GuardedProvider({ provider: vpc, clock, isLeading: () => true }), {
          signal: AbortSignal.timeout(60_000),
        });
        await clock.advance(60_000);
        await passed;
      }
      running[Symbol.dispose]();
      const expected: Record<string, number> = {};
      let isLent = false;
      for (const { metadata, status, wish } of cluster.pods.values()) {
        const claim = cluster.claims.get(metadata.uid);

        const hasEnded = isOver({ status });
        if (claim === undefined) {
          assert.ok(hasEnded, "a pod that runs has its claim");
          continue;
        }
        const isPlugged = claim.status?.conditions?.some(({ type }) => type === "Plugged") === true;
        assert.ok(!hasEnded || isPlugged, "only what is plugged outlives its pod's end");
        const nics = claim.status?.nics ?? [];
        if (!hasEnded) {
          for (const nic of nics) {
            const isTaken = nic.reason === "PortInUse" || nic.reason === "PortLost";
            assert.ok(isTaken || (nic.portID !== undefined && vpc.ports.has(nic.portID)), `${nic.name} ${nic.reason}`);
          }
          const wanted = wish.kind === "wanted" ? wish.nics : [];
          assert.deepEqual(
            nics.map(({ name }) => name),
            wanted.map(({ name }) => name),
          );
          for (const nic of nics) {
            const port = vpc.ports.get(nic.portID ?? "");
            const groups = wanted.find(({ name }) => name === nic.name)?.securityGroups ?? [];
            if (nic.createdByController === true && port !== undefined) assert.deepEqual(port.securityGroups, groups);
          }
        }
        isLent ||= vpc.ports.get(lent)?.deviceId === metadata.uid;
        const counts = portCounts(vpc);
        // A pod that has ended keeps what it has until it is unplugged, known or not.
        const has = hasEnded
          ? Math.min(nics.length, counts[metadata.uid] ?? 0)
          : nics.filter(({ portID }) => portID !== undefined && vpc.ports.get(portID)?.deviceId === metadata.uid)
              .length;
        if (has > 0) expected[metadata.uid] = has;
      }
      const userPort = vpc.ports.get(lent) ?? assert.fail("the user's port was deleted");
      if (!isLent) {
        assert.deepEqual([userPort.deviceId, userPort.deviceOwner, userPort.binding.host], ["", "their:own", ""]);
        expected[""] = 1;
      }
      assert.deepEqual(portCounts(vpc), expected);
    }),
    { numRuns: 80 },
  );
});

test("Collector: items of one moment are one request; more gather while requests are under way", async () => {
  const clock = new FakeClock();
  const sent: (readonly number[])[] = [];
  const { signal } = new AbortController();
  const collector = new Collector<number, number>(
    { clock },
    {
      gatherMs: 20,
      maxItems: 3,
      maxAtOnce: 1,
      signal,
      send: async (items) => {
        sent.push(items);
        await new Promise<void>((resolve) => void clock.after(100, resolve));
        if (items.includes(13)) throw new Error("unlucky");
        return items.map((item) => item * 10);
      },
    },
  );
  const first = Promise.all([1, 2].map((item) => collector.add(item, {})));
  await clock.advance(19);
  assert.deepEqual(sent, []);
  await clock.advance(1);
  assert.deepEqual(sent, [[1, 2]]);
  const others = Promise.all([3, 4, 5, 6].map((item) => collector.add(item, {})));
  await clock.advance(99);
  assert.equal(sent.length, 1);
  await clock.advance(1);
  assert.deepEqual(await first, [10, 20]);
  await clock.advance(300);
  assert.deepEqual(sent, [[1, 2], [3, 4, 5], [6]]);
  assert.deepEqual(await others, [30, 40, 50, 60]);
  const unlucky = Promise.allSettled([12, 13].map((item) => collector.add(item, {})));
  await clock.advance(200);
  assert.deepEqual(
    (await unlucky).map(({ status }) => status),
    ["rejected", "rejected"],
  );
  await assert.rejects(collector.add(1, { signal: AbortSignal.abort(new Error("gone")) }), /gone/);
});

test("GuardedProvider: a process that may not lead asks nothing, and one that leads not too often", async () => {
  const clock = new FakeClock();
  const vpc = new FakeVpc(clock);
  let leads = true;
  const guarded = new GuardedProvider({ provider: vpc, clock, isLeading: () => leads });
  const many = Promise.all(Array.from({ length: 100 }, () => guarded.findPorts(["x"], {})));
  await clock.advance(1000);
  // A burst of 40, then 20 a second.
  assert.ok((vpc.calls["find"] ?? 0) <= 62, `${vpc.calls["find"]} requests`);
  await clock.advance(3000);
  await many;
  leads = false;
  const refused = guarded.findPorts(["x"], {});
  refused.catch(() => undefined);
  await clock.advance(1000);
  await assert.rejects(refused, /another process may lead/);
  await assert.rejects(guarded.resolve({ vpc: "vpc-1", projectId: undefined }, {}), /another process may lead/);
  assert.equal(vpc.calls["find"], 100);
});

test("a pod whose port is active is told so, and another project's pod gets its port, while hundreds of pods wait for slow requests", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const [plugged, other] = [uidOf(1), uidOf(2)];
  const state = (uid: string): string | undefined => cluster.claims.get(uid)?.status?.nics?.[0]?.state;
  cluster.addPod(plugged, ONE, "node-1");
  cluster.addPod(uidOf(3), ONE, "node-1");
  await clock.advance(1000);
  /** A cloud that needs half a minute to make ports of the project of most pods. */
  const create = vpc.createPorts.bind(vpc);
  vpc.createPorts = async (requests, options) => {
    if (requests.some(({ identity }) => identity.deviceId !== other))
      await new Promise<void>((resolve) => void clock.after(30_000, resolve));
    return create(requests, options);
  };
  for (let at = 10; at < 700; at += 1) cluster.addPod(uidOf(at), ONE, "node-1");
  await clock.advance(3000);
  cluster.tell(plugged, "Plugged");
  for (const [id, { deviceId }] of vpc.ports) if (deviceId === plugged) vpc.change(id, { status: "ACTIVE" });
  cluster.addPod(other, { kind: "wanted", vpc: "vpc-2", nics: [{ name: "eth0" }] }, "node-1");
  await clock.advance(3000);
  assert.equal(state(plugged), "Ready");
  assert.equal(portCounts(vpc)[other], 1);
  // So is one that ends.
  cluster.deletePod(uidOf(3));
  await clock.advance(3000);
  assert.equal(cluster.claims.has(uidOf(3)), false);
  await clock.advance(400_000);
  assert.equal(vpc.ports.size, 692);
});

test("a port that is given back wakes a few of the pods that wait for one, those of its project that have waited longest", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const asked: string[] = [];
  const create = vpc.createPorts.bind(vpc);
  vpc.createPorts = async (requests, options) => {
    asked.push(...requests.map(({ identity }) => identity.deviceId));
    const fitting = requests.slice(0, 5 - vpc.ports.size);
    const made = fitting.length === 0 ? [] : await create(fitting, options);
    const over = new ProviderError("ProviderQuota", "over quota", { retry: "slow" });
    return [...made, ...requests.slice(made.length).map(() => ({ error: over }))];
  };
  for (let at = 1; at <= 5; at += 1) cluster.addPod(uidOf(at), ONE, "node-1");
  await clock.advance(2000);
  for (let at = 10; at < 110; at += 1) cluster.addPod(uidOf(at), at < 100 ? ONE : { ...ONE, vpc: "vpc-2" }, "node-1");
  // Their pauses are minutes by now.
  await clock.advance(900_000);
  assert.equal(vpc.ports.size, 5);
  for (let deleted = 1; deleted <= 3; deleted += 1) {
    asked.splice(0);
    cluster.deletePod(uidOf(deleted));
    await clock.advance(500);
    assert.ok(asked.length > 0 && asked.length <= 17, `${asked.length} ports asked for`);
    assert.equal(vpc.ports.size, 5, "one of them has it");
    assert.ok(
      asked.every((uid) => uid < uidOf(100)),
      "none of another project",
    );
  }
});

test("GuardedProvider: requests that take long to make ports, of any number of projects, hold up no look; each has its own turn and needs the lead", async () => {
  const clock = new FakeClock();
  let leads = true;
  let asked = 0;
  /** A cloud that makes each port by a request of 30 s. */
  class Slow extends FakeVpc {
    override async createPorts(requests: readonly PortRequest[], { pace }: CreateOptions) {
      return Promise.all(
        requests.map(async () => {
          await pace?.();
          asked += 1;
          await new Promise<void>((resolve) => void clock.after(30_000, resolve));
          return { error: new ProviderError("SubnetFull", "full", { retry: "slow" }) };
        }),
      );
    }
  }
  const vpc = new Slow(clock);
  const guarded = new GuardedProvider({ provider: vpc, clock, isLeading: () => leads });
  const request = (project: string, at: number): PortRequest => ({
    identity: portIdentity(uidOf(at), { cluster: "c1", namespace: "default", pod: "p", nic: "eth0" }),
    vpc: { ref: "vpc-1", projectId: project, networks: new Map(), subnets: [] },
    wish: { securityGroups: [], wantsIpv6: false },
    host: undefined,
  });
  const bulk = (project: string) =>
    guarded.createPorts(
      Array.from({ length: 50 }, (_, at) => request(project, at)),
      {},
    );
  const all = Promise.allSettled(["a", "a", "b", "b", "c", "c", "d", "d"].map(bulk));
  await clock.advance(100);
  // A burst of 40 for each project.
  assert.ok(asked >= 160 && asked <= 170, `${asked} requests`);
  let isSeen = false;
  const seen = guarded.pollPorts(["x"], {}).then(() => {
    isSeen = true;
  });
  await clock.advance(1000);
  assert.equal(isSeen, true);
  await seen;
  // Bindings wait for their own turn, not looks for theirs.
  const bindings = Promise.allSettled(
    Array.from({ length: 400 }, () => guarded.bindPort("x", { host: "h", deviceId: "", deviceOwner: "" }, {})),
  );
  const looked = guarded.pollPorts(["x"], {});
  await clock.advance(1000);
  await looked;
  assert.ok((vpc.calls["bind"] ?? 0) < 100);
  leads = false;
  const before = asked;
  await clock.advance(60_000);
  await Promise.all([all, bindings]);
  assert.equal(asked, before, "no further one of a request that was begun");
});
