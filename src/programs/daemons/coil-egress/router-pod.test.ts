import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { vxlanDriver } from "#features/egress";
import { FakeKernel } from "#kernel/fake";
import { routerPodReader } from "./router-pod.ts";

test("routerPodReader: the MTU is the one of now; without IPv6, or with an MTU that is too small for it, IPv4 alone is served, and the log says why", () => {
  const kernel = new FakeKernel();
  using netns = kernel.createNetNs("router");
  using own = kernel.openNetNs("own");
  using host = kernel.openStack(own);
  host.links.create({ kind: "veth", name: "veth0", up: true, peer: { name: "eth0", netns, up: true } });
  using stack = kernel.openStack(netns);
  const lines: string[] = [];
  const log = createLogger({ name: "coil-egress", write: (line) => lines.push(line) });
  const addresses = { 4: IpAddress.parse("10.64.0.8"), 6: IpAddress.parse("fd02::8") };
  const egress = { namespace: "internet", name: "nat" };
  const podNow = routerPodReader({ stack, log }, { egress, addresses, ifname: "eth0", driver: vxlanDriver });
  const told = (): string => {
    const { addresses: served, mtuBytes } = podNow();
    return `${Object.values(served).join(" ")} ${mtuBytes}`;
  };
  const { index } = stack.links.get({ name: "eth0" }) ?? assert.fail();
  assert.equal(told(), "10.64.0.8 fd02::8 1500");
  stack.links.set(index, { mtu: 1350 });
  assert.equal(told(), "10.64.0.8 fd02::8 1350");
  assert.equal(lines.length, 0);
  stack.links.set(index, { mtu: 1349 });
  for (let times = 0; times < 2; times += 1) assert.equal(told(), "10.64.0.8 1349");
  stack.sysctl.set("net/ipv6/conf/eth0/disable_ipv6", 1);
  assert.equal(told(), "10.64.0.8 1349");
  stack.sysctl.set("net/ipv6/conf/eth0/disable_ipv6", 0);
  stack.links.set(index, { mtu: 1500 });
  assert.equal(told(), "10.64.0.8 fd02::8 1500");
  assert.deepEqual(
    lines.map(
      (line) => /an MTU of 1349 bytes, and tunnels of IPv6 need 1350|switched off on eth0|again/.exec(line)?.[0],
    ),
    ["an MTU of 1349 bytes, and tunnels of IPv6 need 1350", "switched off on eth0", "again"],
  );
  stack.links.delete(index);
  assert.throws(podNow, { name: "KernelError", code: "no-device" });
});
