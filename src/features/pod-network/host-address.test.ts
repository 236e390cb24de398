import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import { PodNetwork } from "./pod-network.ts";

test("PodNetwork: an address of the Node that only links of pods have, as their gateway, is none of this host", async () => {
  const kernel = new FakeKernel();
  kernel.createNetNs("pod")[Symbol.dispose]();
  using own = kernel.openNetNs("own");
  using host = kernel.openStack(own);
  using network = new PodNetwork(
    { kernel, log: nullLogger },
    { tableId: 116, rulePriority: 2000, protocolId: 30, compatCalico: false, hostLinkLocal: false, mtuBytes: 1500 },
  );
  const node = { ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") };
  network.setNodeAddresses(node);
  network.initHost();
  const attachment = { containerId: "aaaa", ifname: "eth0" };
  const pod = { namespace: "ns", name: "a" };
  const addresses = { ipv4: IpAddress.parse("10.1.0.1"), ipv6: IpAddress.parse("fd01::1") };
  await network.setUp({ attachment, pool: "default", pod, netns: "/run/netns/pod", ...addresses });
  const held = host.addresses.list().map(({ address }) => String(address));
  for (const address of [node.ipv4, node.ipv6]) {
    assert.ok(held.includes(String(address)));
    assert.equal(network.hasHostAddress(address), false);
  }
  const lo = host.links.get({ name: "lo" })?.index ?? assert.fail();
  host.addresses.add({ linkIndex: lo, address: node.ipv4, prefixLength: 32 });
  assert.deepEqual(
    [node.ipv4, node.ipv6].map((one) => network.hasHostAddress(one)),
    [true, false],
  );
});
