import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { resources } from "#kube/client";
import { coilResources, egressLabels } from "#kube/coil";
import { DEADLINE_MS, failure, INTERNET, openClients, stateOf } from "#test/client-bed";
import { syncNet } from "../net-plan/index.ts";
import { planRouter, routerScope } from "../router/index.ts";
import { vxlanDriver } from "../tunnel/index.ts";

test("originatingOnly: a start with the other packet filter moves the marks there, and removes them there; only pods with a trace are looked at, once", async (t) => {
  const bed = await openClients(t, { resyncMs: 50 });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const say = (originatingOnly: boolean) =>
    bed.api.patch(
      coilResources.egresses,
      { namespace: INTERNET, name: "nat" },
      { type: "merge", body: { spec: { originatingOnly } } },
    );
  await say(true);
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.makeNetns("plain", ["10.64.0.8"]);
  const [index] = bed.addDefaultRoute("a");
  await bed.makePod("plain", ["10.64.0.8"], undefined);
  await bed.add(first.clients, await bed.makePod("a", ["10.64.0.7"], "nat"), "a");
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
  const both = [`coil-input-eth0 mark ${index} original`, `coil-output-eth0 mark ${index}`];
  assert.deepEqual([bed.marks(), bed.otherMarks(), bed.looks.other], [both, [], 0]);
  await first.stop();
  const passes = (): number => bed.lines.filter((line) => line.includes('"pod":"a","changes"')).length;
  const before = passes();
  const second = bed.begin({ isOther: true });
  const moved = (): boolean => isDeepStrictEqual([bed.marks(), bed.otherMarks()], [[], both]);
  await poll(moved, { until: (so) => so, everyMs: 5, deadlineMs: DEADLINE_MS, clock: systemClock });
  assert.deepEqual([bed.marks(), bed.otherMarks()], [[], both]);
  const compared = {
    until: (count: number) => count > before,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  };
  await poll(passes, compared);
  await say(false);
  await bed.until("a", "!fwmark", "203.0.113.0/24");
  assert.deepEqual([bed.marks(), bed.otherMarks(), bed.looks.other], [[], [], 1]);
  // The annotation goes while no process runs, and the next one uses the first packet filter again.
  await say(true);
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
  await second.stop();
  await bed.annotate("a", null);
  bed.begin();
  await bed.until("a", "!fwmark", "!203.0.113.0/24");
  assert.deepEqual([bed.marks(), bed.otherMarks(), bed.looks.other], [[], [], 2]);
});

test("a router of an Egress whose annotations name one is no client, at its ADD, later and after a restart, and an event says so", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const first = bed.begin();
  bed.makeNetns("router", ["10.64.0.9"]);
  const made = await bed.makePod("router", ["10.64.0.9"], undefined);
  const ref = { namespace: "default", name: "router" };
  const labelled = await bed.api.patch(resources.pods, ref, {
    type: "merge",
    body: {
      metadata: { labels: egressLabels("nat"), annotations: { [`egress.coil.cybozu.com/${INTERNET}`]: "nat" } },
    },
  });
  assert.equal(labelled.metadata.uid, made.metadata.uid);
  await bed.add(first.clients, labelled, "router", "10.64.0.9");
  assert.doesNotMatch(bed.dump("router"), /nat_|rule 1900/);
  using netns = bed.kernel.openNetNs({ name: "router" });
  using stack = bed.kernel.openStack(netns);
  const own = {
    egress: { namespace: "default", name: "nat" },
    addresses: { 4: IpAddress.parse("10.64.0.9") },
    ifname: "eth0",
    mtuBytes: 1500,
  };
  const options = { driver: vxlanDriver, port: 5555, sourcePortAuto: false };
  await syncNet(stack, planRouter(own, [IpAddress.parse("10.64.0.7")], options), routerScope(5555));
  const before = bed.dump("router");
  assert.match(before, /2000.*iif eth0/);
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.until("a", "203.0.113.0/24");
  await bed.annotate("router", "nat, other");
  await first.stop();
  const { clients } = bed.begin();
  await bed.makeEgress("other", ["198.51.100.0/24"]);
  await bed.makeService("other");
  await bed.annotate("a", "nat,other");
  await bed.until("a", "198.51.100.0/24");
  assert.equal(clients.count, 1);
  assert.equal(bed.dump("router"), before);
  // A client that gets a router's labels is none any more.
  await bed.api.patch(
    resources.pods,
    { namespace: "default", name: "a" },
    { type: "merge", body: { metadata: { labels: egressLabels("nat") } } },
  );
  await bed.until("a", "!nat_", "!203.0.113.0", "!1900");
  const told = bed.events.filter(({ regarding }) => regarding.name === "router");
  assert.ok(told.length > 0);
  for (const { reason, note } of told) {
    assert.equal(reason, "EgressIncomplete");
    assert.match(note ?? "", /routers cannot use an Egress/);
  }
});

test("restart behind another plugin: a pod whose addresses the kubelet has not told yet keeps its tunnels", async (t) => {
  const bed = await openClients(t, { tellsUid: true });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const first = bed.begin();
  const pod = await bed.makePod("a", [], "nat");
  bed.makeNetns("a", ["10.64.0.7"], pod.metadata.uid);
  await bed.add(first.clients, pod, "a");
  await first.stop();
  const before = bed.dump("a");
  assert.match(before, /203\.0\.113\.0\/24/);
  const { clients } = bed.begin();
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, { namespace: INTERNET, name: "nat" }, { type: "merge", body });
  // Another pod shows that the change has arrived.
  const other = await bed.makePod("b", ["10.64.0.8"], "nat");
  bed.makeNetns("b", ["10.64.0.8"], other.metadata.uid);
  await bed.until("b", "198.51.100.0/24");
  assert.equal(bed.dump("a"), before);
  const status = { phase: "Running", podIPs: [{ ip: "10.64.0.7" }] };
  const ref = { namespace: "default", name: "a" };
  await bed.api.patch(resources.pods, ref, { type: "merge", body: { status } }, { subresource: "status" });
  await bed.until("a", "198.51.100.0/24", "!203.0.113.0/24");
  assert.equal(clients.count, 2);
});

test("an API server that fails: a restart changes nothing in pods, an ADD is code 11, and what was edited meanwhile arrives afterwards", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(first.clients, pod, "a");
  await first.stop();
  const before = bed.dump("a");
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, { namespace: INTERNET, name: "nat" }, { type: "merge", body });
  const faults = ["egresses", "services"].map((resource) =>
    bed.server.faults.add({ match: { resource }, action: { status: 500 } }),
  );
  const { clients, health } = bed.begin();
  await assert.rejects(
    bed.add(clients, pod, "a"),
    failure("not-ready", /cannot (list Egresses|read Egress internet\/nat)/),
  );
  await poll(() => health.parts.find(({ name }) => name === "watch-egresses")?.status, {
    until: (status) => status === "degraded",
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.equal(bed.dump("a"), before);
  for (const fault of faults) bed.server.faults.remove(fault);
  await bed.until("a", "198.51.100.0/24", "!203.0.113.0/24");
});

for (const tellsUid of [false, true]) {
  const how = tellsUid ? "by its mark" : "by its address";
  test(`restart, pods found ${how}: nothing changes when nothing differs, and what changed meanwhile is made so`, async (t) => {
    const bed = await openClients(t, { tellsUid });
    await bed.makeEgress("nat", ["203.0.113.0/24"]);
    await bed.makeService("nat");
    const first = bed.begin();
    for (const [at, name] of ["same", "named", "unnamed"].entries()) {
      const address = `10.64.0.1${at}`;
      const pod = await bed.makePod(name, [address], name === "named" ? undefined : "nat");
      bed.makeNetns(name, [address], pod.metadata.uid);
      await bed.add(first.clients, pod, name, address);
    }
    await first.stop();
    const before = bed.dump("same");
    assert.match(before, /203\.0\.113\.0\/24/);
    await bed.annotate("named", "nat");
    await bed.annotate("unnamed", null);
    const second = bed.begin();
    await bed.until("named", "203.0.113.0/24");
    await bed.until("unnamed", "!203.0.113.0/24", "!vxlan");
    // "same" is known as a client once it has been compared.
    await poll(() => second.clients.count, {
      until: (count) => count === 2,
      everyMs: 5,
      deadlineMs: DEADLINE_MS,
      clock: systemClock,
    });
    assert.equal(bed.dump("same"), before);
  });
}

test("restart after the node's routes of one family were flushed: the pod keeps its tunnels, and where no address is known its destinations stay closed", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24", "2001:db8:1::/48"]);
  const service = await bed.makeService("nat");
  assert.equal(service.family, 4);
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7", "fd02::7"]);
  const pod = await bed.makePod("a", ["10.64.0.7", "fd02::7"], "nat");
  // The Service lacks IPv6.
  await bed.until("a", "route 203.0.113.0/24 via", "unreachable 2001:db8:1::/48");
  await first.stop();
  const before = stateOf(bed.dump("a"));
  const [place = assert.fail()] = bed.places;
  // What `places` tells after a flush of IPv4.
  bed.places[0] = { ...place, addresses: [IpAddress.parse("fd02::7")] };
  const second = bed.begin();
  bed.makeNetns("b", ["10.64.0.9"]);
  await bed.makePod("b", ["10.64.0.9"], "nat");
  await bed.until("b", "route 203.0.113.0/24 via");
  assert.deepEqual(stateOf(bed.dump("a")), before);
  await second.stop();
  // Nor does the kubelet tell it.
  await bed.api.patch(
    resources.pods,
    { namespace: "default", name: "a" },
    { type: "merge", body: { status: { podIPs: [{ ip: "fd02::7" }] } } },
    { subresource: "status" },
  );
  const { clients } = bed.begin();
  await bed.until("a", "!route 203.0.113.0/24 via", "unreachable 203.0.113.0/24");
  // Also those of an Egress that the pod does not name any more; CHECK knows it.
  await bed.makeEgress("other", ["198.51.100.0/24"]);
  await bed.makeService("other");
  await bed.annotate("a", "other");
  await bed.until("a", "unreachable 198.51.100.0/24", "unreachable 203.0.113.0/24");
  await clients.check(
    { namespace: "default", name: "a", uid: pod.metadata.uid },
    { signal: new AbortController().signal },
  );
  await bed.annotate("a", "nat");
  bed.places[0] = place;
  clients.recheck();
  await bed.until("a", "route 203.0.113.0/24 via");
});

test("a pod during whose comparison coild was killed three times keeps what it has, with an event; others are compared, and a change of its Egress frees it", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  bed.makeNetns("poison", ["10.64.0.7"]);
  await bed.makePod("poison", ["10.64.0.7"], "nat");
  bed.stuck.add("/run/netns/poison");
  for (let at = 0; at < 3; at += 1) {
    const before = bed.reached.length;
    const one = bed.begin({ isRecorded: true });
    await poll(() => bed.reached.length, {
      until: (n) => n > before,
      everyMs: 5,
      deadlineMs: DEADLINE_MS,
      clock: systemClock,
    });
    one.kill();
  }
  bed.begin({ isRecorded: true });
  bed.makeNetns("good", ["10.64.0.8"]);
  await bed.makePod("good", ["10.64.0.8"], "nat");
  await bed.until("good", "203.0.113.0/24");
  await poll(() => bed.events, {
    until: (events) => events.some(({ reason }) => reason === "SetAside"),
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.equal(bed.reached.length, 3);
  assert.ok(!bed.dump("poison").includes("203.0.113.0/24"));
  const about = bed.events.filter(({ reason }) => reason === "SetAside").map(({ regarding }) => regarding.name);
  assert.deepEqual(about, ["poison"]);
  bed.stuck.clear();
  await bed.editEgress("nat", { destinations: ["198.51.100.0/24"] });
  await bed.until("poison", "198.51.100.0/24");
});
