import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import type { Service } from "#kube/client";
import type { Egress } from "#kube/coil";
import { usesFrom } from "../access/index.ts";
import { clientEgress, clientScope, clientService, gatewaysOf, PRIVATE_RANGES, planClient } from "../client/index.ts";
import { syncNet } from "../net-plan/index.ts";
import { fouDriver, type TunnelDriver, vxlanDriver } from "../tunnel/index.ts";
import { explainClientWay } from "./client-way.ts";
import { clientWayText, routerText } from "./text.ts";

const ip = IpAddress.parse;
const REF = { namespace: "internet", name: "nat" };
const LABELS = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "egress" };
const metadata = { ...REF, uid: "u", resourceVersion: "1" };
const egress = clientEgress({ metadata, spec: { destinations: ["0.0.0.0/0", "::/0"] } } as unknown as Egress);
const service = clientService({
  metadata: { ...metadata, labels: LABELS },
  spec: { clusterIPs: ["10.68.0.9", "fd03::9"] },
} as unknown as Service);
const usesOf = usesFrom([egress.access], () => undefined);
const known = { source: { egress: () => egress, service: () => service, usesOf }, services: [service] };
const annotations = { "egress.coil.cybozu.com/internet": "nat" };
const POD = { namespace: "tenant", annotations, addresses: { 4: ip("10.64.0.7"), 6: ip("fd02::7") }, ifname: "eth0" };

/** A pod's namespace with the tunnels of a driver. */
async function podWith(driver: TunnelDriver, remotes: readonly IpAddress[] = []): Promise<NetStack> {
  const kernel = new FakeKernel();
  const ns = kernel.createNetNs("pod");
  const stack = kernel.openStack(ns);
  using host = kernel.openStack(kernel.openNetNs("own"));
  host.links.create({ kind: "veth", name: "veth0", up: true, peer: { name: "eth0", netns: ns, up: true } });
  const { index } = stack.links.get({ name: "eth0" }) ?? assert.fail();
  for (const address of Object.values(POD.addresses)) stack.addresses.add({ linkIndex: index, address, noDad: true });
  for (const dst of ["0.0.0.0/0", "::/0"]) stack.routes.add({ dst: Cidr.parse(dst), linkIndex: index });
  const { gateways } = gatewaysOf(POD, known.source, [4, 6], { originatingOnly: false });
  const moved = gateways.map((one) => ({
    ...one,
    address: remotes.find(({ family }) => family === one.address.family) ?? one.address,
  }));
  const { plan } = planClient({ ...POD, mtuBytes: 1500 }, moved, { driver, port: 5555, inCluster: PRIVATE_RANGES });
  await syncNet(stack, plan, clientScope(5555));
  return stack;
}

const LINKS = {
  fou: [/^fou4_0a440009$/, /^fou6_[0-9a-f]{8}$/],
  vxlan: [/^nat_04[0-9a-f]{6}$/, /^nat_06[0-9a-f]{6}$/],
} as const;

for (const driver of [fouDriver, vxlanDriver]) {
  test(`explainClientWay, ${driver.name}: the tunnel, its Egress and the way of its own packets, in both families`, async () => {
    using stack = await podWith(driver);
    for (const [at, to] of ["203.0.113.9", "2001:db8::9"].entries()) {
      const { way, egress: found, outer, notes } = await explainClientWay(stack, POD, ip(to), { known });
      assert.deepEqual([way.outcome, way.isConfirmed, way.decidedBy?.table, found], ["tunnel", true, 118, REF]);
      assert.match(way.device?.name ?? "", LINKS[driver.name][at] ?? assert.fail());
      assert.deepEqual(
        [way.tunnel?.driver, String(way.tunnel?.remote), way.tunnel?.port],
        [driver.name, String(service.addresses[at]), 5555],
      );
      assert.deepEqual([outer?.outcome, outer?.device?.name], ["link", "eth0"]);
      assert.match(outer?.rows.map(({ result }) => result).join() ?? "", /throw /);
      assert.deepEqual(notes, []);
      const text = clientWayText({ way, egress: found ?? REF, notes, ...(outer === undefined ? {} : { outer }) }, "/x");
      assert.match(text.join("\n"), new RegExp(`goes into tunnel .* \\(${driver.name}.* of Egress internet/nat`));
    }
  });
}

test("explainClientWay: a router that serves the pod past the Service is named, with its Egress", async () => {
  const addresses = [ip("10.64.9.1"), ip("fd02::91")];
  const router = {
    metadata: { ...metadata, name: "nat-1" },
    egress: "internet/nat",
    addresses,
    isReady: true,
    isEnding: false,
  };
  using stack = await podWith(vxlanDriver, addresses);
  for (const to of ["203.0.113.9", "2001:db8::9"]) {
    const served = await explainClientWay(stack, POD, ip(to), { known: { ...known, routers: [router] } });
    assert.deepEqual(served.egress, REF);
    assert.deepEqual(served.notes, [
      "router nat-1 of Egress internet/nat serves the pod at its own address, past the Service: another router of the Egress answers no probes of this node",
    ]);
    // These credentials may not list routers.
    const unknown = await explainClientWay(stack, POD, ip(to), { known });
    assert.match(unknown.notes.join(), /no Egress's Service has the address/);
  }
});

test("explainClientWay: notes name what is wrong, or why a packet meets no Egress", async () => {
  using stack = await podWith(vxlanDriver);
  const notesOf = async (to: string, more: { pod?: object; known?: object } = {}): Promise<string> => {
    const { notes } = await explainClientWay(stack, { ...POD, ...more.pod }, ip(to), {
      known: { ...known, ...more.known },
    });
    return notes.join("\n");
  };
  assert.match(await notesOf("10.9.9.9"), /rule 2000 \(from all to 10\.0\.0\.0\/8 lookup main\) keeps ranges/);
  assert.match(await notesOf("169.254.9.9"), /link-local addresses never go to an Egress \(rule 1800\)/);
  assert.match(await notesOf("10.64.0.7"), /an address of the pod itself/);
  assert.match(
    await notesOf("203.0.113.9", { known: { services: [] } }),
    /no Egress's Service has the address 10\.68\.0\.9/,
  );
  assert.match(
    await notesOf("203.0.113.9", { pod: { annotations: {} } }),
    /does not use Egress internet\/nat any more/,
  );
  const other = { ...service, metadata: { ...service.metadata, name: "other" } };
  assert.match(await notesOf("203.0.113.9", { known: { services: [other] } }), /is not that of Egress internet\/other/);
  const gone = { source: { egress: () => undefined, service: () => undefined, usesOf: () => [] } };
  assert.match(await notesOf("203.0.113.9", { known: gone }), /Egress "internet\/nat" does not exist/);
  for (const link of stack.links.list()) if (link.name.startsWith("nat_")) stack.links.delete(link.index);
  assert.match(await notesOf("203.0.113.9"), /the tunnel to this destination is missing/);
  const { way } = await explainClientWay(stack, POD, ip("203.0.113.9"), { known });
  assert.deepEqual([way.outcome, way.isGuard], ["refused", true]);
  assert.match(
    await notesOf("203.0.113.9", { known: gone }),
    /is closed: an Egress that the pod names has it, and is gone/,
  );
  for (const rule of stack.rules.list(4)) if (rule.priority === 2100) stack.rules.delete(rule);
  assert.match(await notesOf("203.0.113.9"), /has this destination, but the pod has no way to it/);
});

test("explainClientWay: an Egress that selects the pod is named as such, and what it has left closed when it does not any more", async () => {
  using stack = await podWith(vxlanDriver);
  const selecting = clientEgress({
    metadata,
    spec: { destinations: ["0.0.0.0/0", "::/0"], clients: [{ namespaceSelector: {} }] },
  } as unknown as Egress);
  const source = (clientsOf: string | undefined) => ({
    egress: () => selecting,
    service: () => service,
    usesOf: usesFrom([selecting.access], () => ({ name: "tenant", labels: {}, clientsOf })),
  });
  const pod = { ...POD, annotations: {} };
  const notesWith = async (clientsOf: string | undefined): Promise<string> => {
    const explained = { ...known, source: source(clientsOf) };
    return (await explainClientWay(stack, pod, ip("203.0.113.9"), { known: explained })).notes.join("\n");
  };
  assert.equal(await notesWith("internet/nat"), "spec.clients of Egress internet/nat selects the pod");
  assert.match(await notesWith(undefined), /does not use Egress internet\/nat any more/);
  const closed = { annotation: [], selector: [Cidr.parse("0.0.0.0/0")] };
  const options = { driver: vxlanDriver, port: 5555, inCluster: PRIVATE_RANGES };
  const { plan } = planClient({ ...POD, mtuBytes: 1500, closed }, [], options);
  await syncNet(stack, plan, clientScope(5555));
  assert.match(await notesWith(undefined), /is closed: an Egress that selected the pod has it/);
});

test("routerText: a router that is here and lacks its rule is told", () => {
  const end = { leavesAs: "10.64.0.8", rule: "masquerade", pod: "internet/nat-1", node: "a" };
  assert.match(routerText([{ ...end, isThere: false }]).join("\n"), /lacks the rule/);
  assert.match(routerText([end]).join("\n"), /not on this machine/);
});
