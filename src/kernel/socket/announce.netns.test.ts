import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress, MacAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { until } from "#test/lab";
import { announceAddresses } from "./index.ts";

test("announceAddresses: a neighbour learns an IPv4 address, and the new MAC address of one of IPv6 that it knows", async () => {
  const kernel = openKernel();
  using nsA = kernel.createAnonymousNetNs();
  using nsB = kernel.createAnonymousNetNs();
  using a = kernel.openStack(nsA);
  using b = kernel.openStack(nsB);
  const mac = MacAddress.parse("fa:16:3e:00:00:01");
  const left = a.links.create({
    kind: "veth",
    name: "left",
    mac,
    up: true,
    peer: { name: "right", netns: nsB, up: true },
  });
  const right = b.links.get({ name: "right" });
  assert.ok(right !== undefined);
  // Linux makes an entry of an unasked ARP request only on demand.
  b.sysctl.set("net.ipv4.conf.right.arp_accept", "1");
  const [four, six] = [IpAddress.parse("10.0.0.5"), IpAddress.parse("fd00::5")];
  b.addresses.add({ linkIndex: right.index, address: IpAddress.parse("10.0.0.6"), prefixLength: 24 });
  b.addresses.add({ linkIndex: right.index, address: IpAddress.parse("fd00::6"), prefixLength: 64, noDad: true });
  const old = MacAddress.parse("02:00:00:00:00:99");
  b.neighbours.replace({ linkIndex: right.index, address: six, mac: old, state: "stale" });
  const macOf = (address: IpAddress): string | undefined => {
    const found = b.neighbours.list({ linkIndex: right.index }).find((one) => one.address.equals(address));
    return found?.mac?.toString();
  };
  assert.equal(macOf(four), undefined);
  announceAddresses(nsA, { index: left.index, mac }, [four, six]);
  await until("both are known", () => macOf(four) === String(mac) && macOf(six) === String(mac));
});
