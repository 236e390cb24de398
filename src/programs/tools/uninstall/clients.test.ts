import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { PRIVATE_RANGES, syncClient, vxlanDriver } from "#features/egress";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import { readClients, removeClient } from "./clients.ts";

const PORT = 5555;

test("readClients: pods with tunnels or closed destinations are named by their marks, of either kind of network; removeClient leaves nothing of them, also on a kernel without nftables", async () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using host = kernel.openStack(own);
  const unused = () => assert.fail("no packet filter and no connection tracking is opened");
  const gateway = {
    egress: { namespace: "internet", name: "nat" },
    address: IpAddress.parse("10.68.0.9"),
    destinations: [Cidr.parse("203.0.113.0/24")],
    sourcePortAuto: false,
    originatingOnly: false,
  };
  const dumps = new Map<string, string>();
  for (const { name, alias, gateways, closed } of [
    { name: "tunnel", alias: "COIL::uid-1:eth0", gateways: [gateway], closed: [] },
    { name: "closed", alias: "COIL:default:c2:eth0", gateways: [], closed: ["0.0.0.0/0"] },
    { name: "plain", alias: "COIL::uid-3:eth0", gateways: [], closed: [] },
  ]) {
    using netns = kernel.createNetNs(name);
    host.links.create({ kind: "veth", name: `v-${name}`, alias, up: true, peer: { name: "eth0", netns, up: true } });
    using stack = kernel.openStack(netns);
    const linkIndex = stack.links.get({ name: "eth0" })?.index ?? assert.fail();
    stack.addresses.add({ linkIndex, address: IpAddress.parse("10.64.0.7") });
    dumps.set(name, kernel.dump({ name }));
    const pod = {
      addresses: { 4: IpAddress.parse("10.64.0.7") },
      ifname: "eth0",
      mtuBytes: 1500,
      closed: { annotation: [], selector: closed.map((text) => Cidr.parse(text)) },
    };
    await syncClient(stack, pod, gateways, {
      driver: vxlanDriver,
      port: PORT,
      inCluster: PRIVATE_RANGES,
      openFilter: unused,
      openConntrack: unused,
    });
  }
  const found = readClients(kernel, host, { port: PORT });
  assert.deepEqual(found.map(({ who, path, destinations, isCutOff }) => [who, path, destinations, isCutOff]).sort(), [
    ["the pod of container c2", "/run/netns/closed", ["0.0.0.0/0"], true],
    ["the pod with UID uid-1", "/run/netns/tunnel", ["203.0.113.0/24"], false],
  ]);
  const unguarded: string[] = [];
  const lacks = (code: "unsupported" | "invalid") => {
    throw new KernelError(code, "this kernel has no nf_tables");
  };
  const openGuard = ({ path }: { readonly path?: string | undefined }) => ({
    sync: () => assert.fail("nothing is made"),
    remove: () => {
      unguarded.push(path ?? "");
      return path === "/run/netns/closed" ? lacks("invalid") : 1;
    },
    [Symbol.dispose]: () => undefined,
  });
  for (const client of found) await removeClient(kernel, client, { port: PORT, openGuard });
  assert.deepEqual(unguarded.sort(), ["/run/netns/closed", "/run/netns/tunnel"]);
  assert.deepEqual(readClients(kernel, host, { port: PORT }), []);
  for (const client of found) await removeClient(kernel, client, { port: PORT, openGuard: () => lacks("unsupported") });
  for (const [name, before] of dumps) assert.equal(kernel.dump({ name }), before);
});
