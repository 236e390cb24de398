import assert from "node:assert/strict";
import { test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import { resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { ALL_TENANTS, DEADLINE_MS, failure, INTERNET, openClients } from "#test/client-bed";

test("ADD: a pod gets its tunnel and routes; one that no Egress concerns costs no request and no step in the kernel", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  // Once one that the watch tells has its tunnel, all watches are there.
  bed.makeNetns("first", ["10.64.0.9"]);
  await bed.makePod("first", ["10.64.0.9"], "nat");
  await bed.until("first", "203.0.113.0/24");
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(clients, await bed.makePod("a", [], " nat ,nat"), "a");
  await bed.until("a", "203.0.113.0/24", "vxlan mtu 1450");
  assert.equal(clients.count, 2);
  const plain = await bed.makePod("plain", [], undefined);
  await poll(() => bed.lines.join(""), {
    until: (text) => text.includes("the NAT client of a pod changed"),
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  bed.kernel.fail("*", "busy", { times: Number.POSITIVE_INFINITY });
  bed.server.faults.add({ action: { status: 500 } });
  await bed.add(clients, plain, "nowhere");
});

test("ADD: a missing Egress or Service, a refused step and an API server that fails are code 11, and each names its cause", async (t) => {
  const bed = await openClients(t);
  const { clients } = bed.begin({ runs: false });
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", [], "nat");
  await assert.rejects(bed.add(clients, pod, "a"), failure("try-again", /^Egress "internet\/nat" does not exist/));
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await assert.rejects(bed.add(clients, pod, "a"), failure("try-again", /^Egress "internet\/nat" has no Service/));
  await bed.makeService("nat");
  bed.kernel.fail("links.create", "not-permitted", { about: "nat_" });
  await assert.rejects(bed.add(clients, pod, "a"), failure("try-again", /way to its Egress: make link nat_/));
  const fault = bed.server.faults.add({ match: { resource: "services" }, action: { status: 500 } });
  await assert.rejects(bed.add(clients, pod, "a"), failure("not-ready", /cannot read Service internet\/nat/));
  bed.server.faults.remove(fault);
  const rubbish = await bed.makePod("rubbish", [], "../../../api/v1/secrets,nat");
  await assert.rejects(
    bed.add(clients, rubbish, "a"),
    failure("try-again", /secrets" is not a name that an Egress can have/),
  );
  assert.equal(clients.count, 0);
  // Each is in an event of its pod too.
  assert.deepEqual(
    bed.events.map(({ reason, regarding: { kind, name }, note = "" }) => [
      reason,
      kind,
      name,
      /Egress|Service/.test(note),
    ]),
    [...Array.from({ length: 4 }, () => "a"), "rubbish"].map((name) => ["EgressNotReady", "Pod", name, true]),
  );
  await bed.add(clients, pod, "a");
  await bed.until("a", "203.0.113.0/24");
});

test("a kernel without the driver: pods that name an Egress get code 11 with the fix, others start, and coild is ready", async (t) => {
  const bed = await openClients(t, { kernel: new FakeKernel({ lacks: ["fou", "ipip"] }), asked: "fou" });
  const { clients, health } = bed.begin();
  assert.deepEqual(bed.drivers, ["none"]);
  assert.equal(
    bed.lines.filter((line) => line.includes("--tunnel-driver=fou: this kernel has no fou, no ipip")).length,
    1,
  );
  assert.equal(health.parts.find(({ name }) => name === "tunnel-driver")?.status, "degraded");
  assert.deepEqual(health.unready, []);
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", [], "nat");
  await assert.rejects(bed.add(clients, pod, "a"), failure("try-again", /choose --tunnel-driver=vxlan or auto/));
  await bed.add(clients, await bed.makePod("plain", [], undefined), "a");
});

test("a kernel with fou and without fou6, on which 0.1.0 worked: pods of IPv4 alone are clients, and the audit has their driver", async (t) => {
  const bed = await openClients(t, { kernel: new FakeKernel({ lacks: ["fou6"] }), asked: "fou" });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(clients, pod, "a");
  await bed.until("a", "fou4_", "203.0.113.0/24");
  const signal = new AbortController().signal;
  // Its families are those of the pods that the watch has told.
  const found = await poll(async () => (await clients.inspect({ signal })).clients, {
    until: (one) => one?.driver !== undefined,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.deepEqual([found?.driver, found?.fault], ["fou", ""]);
  const v6 = { ipv4: IpAddress.parse("10.64.0.8"), ipv6: IpAddress.parse("fd02::8") };
  const { name, namespace = "", uid, annotations, labels } = (await bed.makePod("b", [], "nat")).metadata;
  const request = { pod: { name, namespace, uid, annotations, labels }, netns: "/run/netns/a", ifname: "eth0", ...v6 };
  await assert.rejects(clients.setUp(request, { signal }), failure("try-again", /this kernel has no fou6: /));
});

test("two Egresses with one destination: ADD succeeds, and the log and an event of the pod name both", async (t) => {
  const bed = await openClients(t);
  for (const name of ["one", "two"]) {
    await bed.makeEgress(name, ["203.0.113.0/24"]);
    await bed.makeService(name);
  }
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(clients, await bed.makePod("a", ["10.64.0.7"], "two,one"), "a");
  const seen = await poll(() => bed.events[0]?.note ?? "", {
    until: (note) => note !== "",
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.match(seen, /^Egress internet\/two: destination 203\.0\.113\.0\/24 is left out, because Egress internet\/one/);
});

test("a named Egress that does not allow the namespace: ADD is code 11 with one event, waits for the permission, and goes on as soon as it is there", async (t) => {
  const bed = await openClients(t, { permissionMs: 60_000 });
  await bed.makeEgress("nat", ["203.0.113.0/24"], { allowedNamespaces: { names: ["other"] } });
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", [], "nat");
  const added = bed.add(clients, pod, "a");
  const seen = await poll(() => bed.events.filter(({ reason }) => reason === "EgressRefused"), {
    until: (events) => events.length > 0,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.match(
    seen[0]?.note ?? "",
    /^Egress "internet\/nat" does not allow pods of namespace "default": ask those who manage this Egress to add the namespace to its spec\.allowedNamespaces/,
  );
  assert.doesNotMatch(bed.dump("a"), /203\.0\.113/);
  await bed.editEgress("nat", { allowedNamespaces: { names: ["default"] } });
  await added;
  await bed.until("a", "route 203.0.113.0/24 via");
  assert.equal(new Set(bed.events.filter(({ reason }) => reason === "EgressRefused").map(({ note }) => note)).size, 1);
  const other = await openClients(t);
  await other.makeEgress("nat", ["203.0.113.0/24"], { allowedNamespaces: {} });
  const refusing = other.begin({ runs: false });
  const refused = await other.makePod("b", [], "nat");
  await assert.rejects(
    other.add(refusing.clients, refused, "b"),
    failure("refused", /does not allow pods of namespace/),
  );
});

test("ADD: one that waits for a permission looks five times a second at most, however often Egresses are edited", async (t) => {
  const bed = await openClients(t, { permissionMs: 60_000 });
  const refusing = { allowedNamespaces: { names: ["other"] } };
  const allowing = { allowedNamespaces: { names: ["default"] } };
  for (const name of ["one", "two"]) {
    await bed.makeEgress(name, [name === "one" ? "203.0.113.0/24" : "198.51.100.0/24"], refusing);
    await bed.makeService(name);
  }
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const added = bed.add(clients, await bed.makePod("a", [], "one,two"), "a");
  const begunMs = systemClock.monotonic();
  // Each look that finds another first refusal records an event.
  for (let nth = 0; nth < 100; nth += 1) await bed.editEgress("one", nth % 2 === 0 ? allowing : refusing);
  for (const name of ["one", "two"]) await bed.editEgress(name, allowing);
  await added;
  const looks = bed.events.filter(({ reason }) => reason === "EgressRefused").length;
  const seconds = (systemClock.monotonic() - begunMs) / 1000;
  assert.ok(looks >= 1 && looks <= 5 * seconds + 2, `${looks} in ${seconds} s`);
});

test("ADD: a pod that an Egress selects gets its tunnel; one of a namespace that does not consent starts without, and is told nothing", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"], { clients: ALL_TENANTS });
  await bed.makeService("nat");
  for (const runs of [false, true]) {
    const { clients, stop } = bed.begin({ runs });
    bed.makeNetns(`a${runs}`, ["10.64.0.7"]);
    // The watch may not have told of the second edit yet.
    if (!runs) await bed.add(clients, await bed.makePod("refused", [], undefined, { app: "web" }), "nowhere");
    await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": "internet/nat" } });
    await bed.add(clients, await bed.makePod(`a${runs}`, [], undefined, { app: "web" }), `a${runs}`);
    assert.match(bed.dump(`a${runs}`), /route 203\.0\.113\.0\/24 via/);
    await stop();
  }
  assert.deepEqual(bed.events, []);
});

test("CHECK: it names what a pod lacks of its client, waits for an edit under way, and says nothing of pods that it does not know", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  const check = (uid = pod.metadata.uid): Promise<void> =>
    clients.check({ namespace: "default", name: "a", uid }, { signal: new AbortController().signal });
  await check();
  await bed.add(clients, pod, "a");
  const metadata = { annotations: { "kubernetes.io/config.hash": "hash" } };
  await bed.api.patch(resources.pods, { namespace: "default", name: "a" }, { type: "merge", body: { metadata } });
  // A name that no Egress can have does not keep others from their updates.
  await bed.annotate("a", "nat,../x");
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, { namespace: INTERNET, name: "nat" }, { type: "merge", body });
  await check();
  await bed.until("a", "198.51.100.0/24");
  using netns = bed.kernel.openNetNs({ name: "a" });
  using stack = bed.kernel.openStack(netns);
  const link = stack.links.list().find(({ name }) => name.startsWith("nat_")) ?? assert.fail();
  stack.links.delete(link.index);
  await assert.rejects(check(), failure("incomplete", /^the pod's way to its Egress lacks: make link nat_/));
  await assert.rejects(check("hash"), failure("incomplete", /^the pod's way to its Egress lacks: make link nat_/));
  await check("another");
});
