import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { applyHost, planHost } from "./host.ts";

const OPTIONS = { tableId: 116, rulePriority: 2000 };
const planned = (host: NetStack): string[] =>
  planHost(host, OPTIONS).map((step) => (step.kind === "sysctl" ? step.key : `rule IPv${step.family}`));
const FORWARDING = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] as const;

/** eth0 has a default route that the kernel made of a router advertisement; eth1 has one of an operator. */
function advertised(host: NetStack, acceptRa: string): void {
  for (const [at, name] of ["eth0", "eth1"].entries()) {
    const link = host.links.create({ kind: "bridge", name, up: true });
    host.sysctl.set(`net/ipv6/conf/${name}/accept_ra`, acceptRa);
    host.addresses.add({ linkIndex: link.index, address: IpAddress.parse(`2001:db8:${at}::2`), prefixLength: 64 });
    host.routes.add({
      dst: Cidr.parse("::/0"),
      gateway: IpAddress.parse(`2001:db8:${at}::1`),
      linkIndex: link.index,
      table: 254,
      protocol: at === 0 ? 9 : 4,
      metric: 1024 + at,
    });
  }
}

for (const { name, before, want } of [
  { name: "a new node", before: () => undefined, want: [...FORWARDING, "rule IPv4", "rule IPv6"] },
  {
    name: "one that forwards IPv4",
    before: (host: NetStack) => host.sysctl.set("net/ipv4/ip_forward", "1"),
    want: ["net/ipv6/conf/all/forwarding", "rule IPv4", "rule IPv6"],
  },
  {
    name: "one with the rule for IPv6",
    before: (host: NetStack) => host.rules.add({ family: 6, priority: 2000, table: 116 }),
    want: [...FORWARDING, "rule IPv4"],
  },
  {
    name: "one whose rule of that priority is for another table",
    before: (host: NetStack) => host.rules.add({ family: 4, priority: 2000, table: 7 }),
    want: [...FORWARDING, "rule IPv4", "rule IPv6"],
  },
  {
    name: "one that has its IPv6 default route from router advertisements, which it must accept as a router too",
    before: (host: NetStack) => advertised(host, "1"),
    want: [FORWARDING[0], "net/ipv6/conf/eth0/accept_ra", FORWARDING[1], "rule IPv4", "rule IPv6"],
  },
  {
    name: "one that accepts router advertisements as a router",
    before: (host: NetStack) => advertised(host, "2"),
    want: [...FORWARDING, "rule IPv4", "rule IPv6"],
  },
  {
    name: "one that forwards, and has such a route",
    before: (host: NetStack) => {
      host.sysctl.set("net/ipv6/conf/all/forwarding", "1");
      advertised(host, "1");
    },
    want: [FORWARDING[0], "rule IPv4", "rule IPv6"],
  },
  {
    name: "one that has everything",
    before: (host: NetStack) => applyHost(host, planHost(host, OPTIONS)),
    want: [],
  },
]) {
  test(`planHost: ${name}`, () => {
    const kernel = new FakeKernel();
    using own = kernel.openNetNs("own");
    using host = kernel.openStack(own);
    before(host);
    assert.deepEqual(planned(host), want);
  });
}
