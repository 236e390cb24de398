import assert from "node:assert/strict";
import { test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { type Draft, type Pod, resources } from "#kube/client";
import { coilResources, egressLabels } from "#kube/coil";
import { DEADLINE_MS, INTERNET, openClients } from "#test/client-bed";

test("live: destinations, annotations, the Service's address and the Egress change; each pod follows, and others are not touched", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  const first = await bed.makeService("nat");
  const { clients } = bed.begin();
  for (const [name, address] of [
    ["a", "10.64.0.7"],
    ["b", "10.64.0.8"],
    ["plain", "10.64.0.9"],
  ] as const)
    bed.makeNetns(name, [address]);
  const plain = bed.dump("plain");
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(clients, pod, "a");
  await bed.makePod("b", ["10.64.0.8"], undefined);
  await bed.makePod("plain", ["10.64.0.9"], undefined);
  const egress = { namespace: INTERNET, name: "nat" };
  const destinations = (...all: readonly string[]) =>
    bed.api.patch(coilResources.egresses, egress, { type: "merge", body: { spec: { destinations: all } } });
  await destinations("203.0.113.0/24", "198.51.100.0/24");
  await bed.until("a", "203.0.113.0/24", "198.51.100.0/24");
  await destinations("198.51.100.0/24");
  await bed.until("a", "!203.0.113.0/24", "198.51.100.0/24");
  // A running pod is named late, and found by its address.
  await bed.annotate("b", "nat");
  await bed.until("b", "198.51.100.0/24");
  assert.equal(clients.count, 2);
  // Without its Service the pod keeps its tunnel: packets must not leave without NAT.
  const kept = bed.dump("a");
  await bed.api.delete(resources.services, egress);
  await bed.annotate("b", null);
  await bed.until("b", "!198.51.100.0/24");
  assert.equal(bed.dump("a"), kept);
  const second = await bed.makeService("nat");
  assert.notEqual(String(second), String(first));
  await bed.until("a", `throw ${second}`, "198.51.100.0/24");
  await bed.api.delete(coilResources.egresses, egress);
  await bed.until("a", "unreachable 198.51.100.0/24", "!vxlan");
  assert.equal(clients.count, 0);
  await bed.annotate("a", null);
  await bed.until("a", "!198.51.100.0/24");
  assert.equal(bed.dump("plain"), plain);
});

test("originatingOnly: the flag holds for an Egress that does not say, and an edit of the Egress reaches its pods", async (t) => {
  const bed = await openClients(t, { originatingOnly: true });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const [index] = bed.addDefaultRoute("a");
  await bed.add(clients, await bed.makePod("a", ["10.64.0.7"], "nat"), "a");
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
  assert.deepEqual(bed.marks(), [`coil-input-eth0 mark ${index} original`, `coil-output-eth0 mark ${index}`]);
  const say = (originatingOnly: boolean | null) =>
    bed.api.patch(
      coilResources.egresses,
      { namespace: INTERNET, name: "nat" },
      { type: "merge", body: { spec: { originatingOnly } } },
    );
  await say(false);
  await bed.until("a", "!fwmark", "203.0.113.0/24");
  assert.deepEqual(bed.marks(), []);
  await say(null);
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
});

test("live: a pod whose namespace is gone and one whose kernel refuses stop no other; the refused one is tried again", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  for (const [at, name] of ["gone", "refused", "well"].entries()) {
    bed.makeNetns(name, [`10.64.0.1${at}`]);
    await bed.add(clients, await bed.makePod(name, [`10.64.0.1${at}`], "nat"), name, `10.64.0.1${at}`);
  }
  bed.kernel.deleteNetNs("gone");
  bed.kernel.fail("routes.replace", "failed", { times: 3 });
  const egress = { namespace: INTERNET, name: "nat" };
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, egress, { type: "merge", body });
  await bed.until("well", "198.51.100.0/24", "!203.0.113.0/24");
  await bed.until("refused", "198.51.100.0/24", "!203.0.113.0/24");
  assert.match(bed.lines.join(""), /namespace of a pod that names an Egress is not found/);
});

test("live: what another program removes in a pod is made again, without any event", async (t) => {
  const bed = await openClients(t, { resyncMs: 500 });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(clients, await bed.makePod("a", ["10.64.0.7"], "nat"), "a");
  using netns = bed.kernel.openNetNs({ name: "a" });
  using stack = bed.kernel.openStack(netns);
  for (let turn = 0; turn < 2; turn += 1) {
    for (const rule of stack.rules.list(4).filter(({ priority }) => priority >= 1800 && priority <= 2100))
      stack.rules.delete(rule);
    await bed.until("a", "rule inet4 2100 protocol 30 lookup 118", "rule inet4 1900");
  }
});

test("live: a pod that fails again and again is tried less and less often, and an event of it tells why", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.kernel.fail("links.create", "busy", { times: Number.POSITIVE_INFINITY });
  const begunMs = systemClock.monotonic();
  await bed.makePod("a", ["10.64.0.7"], "nat");
  await poll(() => bed.events.length, {
    until: (n) => n >= 3,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.ok(systemClock.monotonic() - begunMs > 1000, "0.4 s and 0.8 s, less the tenth that is random");
  const [{ reason = "", note = "" } = {}] = bed.events;
  assert.equal(reason, "EgressNotReady");
  assert.match(note, /^the pod's way to its Egress: make link nat_/);
});

test("coild: a client takes packets of tunnels from the routers of its Egress, also of one that ends, and from nobody else; off means gone", async (t) => {
  const bed = await openClients(t);
  const guard = async (expected: string | undefined): Promise<void> => {
    const read = (): string | undefined => [...bed.guards.values()][0];
    const is = (text: string | undefined): boolean => text === expected;
    const found = await poll(read, { until: is, everyMs: 5, deadlineMs: DEADLINE_MS, clock: systemClock });
    assert.equal(found, expected);
  };
  const router = async (name: string, address: string, of: string): Promise<void> => {
    const metadata = { name, namespace: INTERNET, labels: egressLabels(of) };
    const spec = {
      nodeName: "elsewhere",
      terminationGracePeriodSeconds: 0,
      containers: [{ name: "c", image: "none" }],
    };
    const made = await bed.api.create(resources.pods, { metadata, spec } as Draft<Pod>);
    await bed.api.replaceStatus(resources.pods, { ...made, status: { phase: "Pending", podIPs: [{ ip: address }] } });
  };
  await bed.makeEgress("nat", ["0.0.0.0/0"]);
  const service = await bed.makeService("nat");
  await router("nat-1", "10.64.8.1", "nat");
  await router("other-1", "10.64.8.9", "other");
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  const { clients, stop } = bed.begin();
  await bed.add(clients, pod, "a");
  await guard(`${service},10.64.8.1`);
  await stop();
  // A release before the guard would tell it of no new router.
  await guard(undefined);
  bed.begin();
  await guard(`${service},10.64.8.1`);
  await router("nat-2", "10.64.8.2", "nat");
  await guard(`${service},10.64.8.1,10.64.8.2`);
  await bed.api.delete(resources.pods, { namespace: INTERNET, name: "nat-1" });
  await guard(`${service},10.64.8.2`);
  await bed.annotate("a", null);
  await guard(undefined);
});

test("a router that answers no probes any more loses the clients of its Egress to one that does, and gets them back; others keep their tunnels", async (t) => {
  const dead = new Set<string>();
  const bed = await openClients(t, { answers: (router) => !dead.has(router) });
  const service = await bed.makeService("nat");
  await bed.makeEgress("nat", ["192.0.2.0/24"]);
  const other = await bed.makeService("other");
  await bed.makeEgress("other", ["198.51.100.0/24"]);
  const routers = [
    ["r1", "10.64.9.1"],
    ["r2", "10.64.9.2"],
  ] as const;
  for (const [name, ip] of routers) {
    const made = await bed.api.create(resources.pods, {
      metadata: { name, namespace: INTERNET, labels: egressLabels("nat") },
      spec: { nodeName: "elsewhere", containers: [{ name: "egress", image: "none" }] },
    } as Draft<Pod>);
    const conditions = [{ type: "Ready", status: "True" }];
    await bed.api.replaceStatus(resources.pods, {
      ...made,
      status: { phase: "Running", podIPs: [{ ip }], conditions },
    });
  }
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.makePod("a", ["10.64.0.7"], "nat,other");
  const { clients } = bed.begin();
  await bed.until("a", `throw ${service}`, `throw ${other}`);
  const alive = (): number => clients.routers.verdicts.filter(({ verdict }) => verdict === "alive").length;
  const settled = await poll(alive, {
    until: (count) => count === 2,
    everyMs: 10,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.equal(settled, 2);
  dead.add("10.64.9.1");
  await bed.until("a", "throw 10.64.9.2", `!throw ${service}`, `throw ${other}`);
  assert.deepEqual(
    clients.routers.redirects.map(({ egress, router }) => `${egress} ${router.name}`),
    ["internet/nat r2"],
  );
  // The Service's address stays, for answers of flows that began before.
  assert.match(bed.guards.get("/run/netns/a") ?? "", new RegExp(`${service}.*10\\.64\\.9\\.1,10\\.64\\.9\\.2`));
  const { clients: told } = await clients.inspect({});
  assert.equal(told?.redirects?.length, 1);
  dead.clear();
  await bed.until("a", `throw ${service}`, "!throw 10.64.9.2");
  assert.deepEqual(clients.routers.redirects, []);
});
