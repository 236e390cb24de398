import assert from "node:assert/strict";
import { test } from "node:test";
import { coilResources } from "#kube/coil";
import { ALL_TENANTS, INTERNET, openClients, stateOf } from "#test/client-bed";

test("live: a permission that is withdrawn closes the Egress for running pods, in memory and after a restart, and one that is given opens it", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"], {
    allowedNamespaces: { selector: { matchLabels: { tier: "gold" } } },
  });
  await bed.makeService("nat");
  await bed.editNamespace({ labels: { tier: "gold" } });
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(first.clients, pod, "a");
  await bed.until("a", "route 203.0.113.0/24 via", "vxlan");
  await bed.editNamespace({ labels: { tier: null } });
  await bed.until("a", "!route 203.0.113.0/24 via", "unreachable 203.0.113.0/24", "!vxlan");
  await first.stop();
  const closed = bed.dump("a");
  const second = bed.begin();
  // Another pod shows that this one was compared, as all are at the start.
  bed.makeNetns("b", ["10.64.0.8"]);
  await bed.makeEgress("open", ["198.51.100.0/24"]);
  await bed.makeService("open");
  await bed.makePod("b", ["10.64.0.8"], "open");
  await bed.until("b", "route 198.51.100.0/24 via");
  assert.equal(bed.dump("a"), closed);
  await bed.editNamespace({ labels: { tier: "gold" } });
  await bed.until("a", "route 203.0.113.0/24 via", "vxlan");
  await bed.editEgress("nat", { allowedNamespaces: { selector: null } });
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  assert.deepEqual(stateOf(bed.dump("a")), stateOf(closed));
  await bed.annotate("a", null);
  await bed.until("a", "!203.0.113.0/24");
  assert.equal(second.clients.count, 1);
});

test("live: an Egress selects pods of a namespace that consents; without consent, label or Egress their destinations are closed, also after a restart, and other pods are not touched", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"], { clients: ALL_TENANTS });
  await bed.makeService("nat");
  let coild = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.makeNetns("plain", ["10.64.0.8"]);
  const plain = bed.dump("plain");
  await bed.makePod("plain", ["10.64.0.8"], undefined, { app: "db" });
  await bed.makePod("a", ["10.64.0.7"], undefined, { app: "web" });
  await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": "internet/*" } });
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.relabel("a", { app: "old" });
  await bed.until("a", "unreachable 203.0.113.0/24", "!route 203.0.113.0/24 via");
  await bed.relabel("a", { app: "web" });
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": null } });
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  await coild.stop();
  coild = bed.begin();
  // A pod that is made after the start shows that those that were there have been compared.
  bed.makeNetns("b", ["10.64.0.9"]);
  await bed.makePod("b", ["10.64.0.9"], "nat", { app: "web" });
  await bed.until("b", "route 203.0.113.0/24 via");
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": "internet/nat" } });
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.api.delete(coilResources.egresses, { namespace: INTERNET, name: "nat" });
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  // Who may edit the pod can open it.
  await bed.annotate("a", "nat");
  await bed.until("a", "unreachable 203.0.113.0/24 table 118 proto 30 metric 1000000");
  await bed.annotate("a", null);
  await bed.until("a", "!203.0.113.0/24");
  assert.equal(bed.dump("plain"), plain);
});

test("a coild that may not read Namespaces: Egresses with rules freeze only the pods whose verdict needs one, and others start and follow", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeEgress("gold", ["198.51.100.0/24"], {
    allowedNamespaces: { selector: { matchLabels: { tier: "gold" } } },
    clients: ALL_TENANTS,
  });
  for (const name of ["nat", "gold"]) await bed.makeService(name);
  bed.server.faults.add({ match: { resource: "namespaces" }, action: { status: 500 } });
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.makeNetns("b", ["10.64.0.8"]);
  const unknown = bed.dump("b");
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.makePod("b", ["10.64.0.8"], "nat,gold");
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.add(clients, pod, "a");
  await bed.editEgress("nat", { destinations: ["192.0.2.0/24"] });
  await bed.until("a", "route 192.0.2.0/24 via", "!203.0.113.0/24");
  assert.equal(bed.dump("b"), unknown);
});

test("an Egress that was deleted while coild was down, or is deleted now, stays closed for pods that name it until the annotation goes", async (t) => {
  const bed = await openClients(t);
  for (const [name, destination] of [
    ["one", "203.0.113.0/24"],
    ["two", "198.51.100.0/24"],
  ] as const) {
    await bed.makeEgress(name, [destination]);
    await bed.makeService(name);
  }
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(first.clients, await bed.makePod("a", ["10.64.0.7"], "one,two"), "a");
  await bed.until("a", "route 203.0.113.0/24 via", "route 198.51.100.0/24 via");
  await first.stop();
  await bed.api.delete(coilResources.egresses, { namespace: INTERNET, name: "one" });
  bed.begin();
  await bed.until("a", "!route 203.0.113.0/24 via", "unreachable 203.0.113.0/24", "route 198.51.100.0/24 via");
  await bed.api.delete(coilResources.egresses, { namespace: INTERNET, name: "two" });
  await bed.until("a", "!vxlan", "unreachable 203.0.113.0/24", "unreachable 198.51.100.0/24");
  await bed.makeEgress("one", ["203.0.113.0/24"]);
  await bed.until("a", "route 203.0.113.0/24 via", "unreachable 198.51.100.0/24");
  await bed.annotate("a", "one");
  await bed.until("a", "route 203.0.113.0/24 via", "!198.51.100.0/24");
  await bed.annotate("a", null);
  await bed.until("a", "!203.0.113.0/24");
});
