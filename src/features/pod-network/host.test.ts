import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { applyHost, isHardware, planHost } from "./host.ts";
import { Uplinks } from "./uplinks.ts";

const OPTIONS = { tableId: 116, rulePriority: 2000 };
const planned = (host: NetStack, { forwardsForUs = false } = {}): string[] =>
  planHost(host, OPTIONS, { uplinks: new Uplinks(host.routes).all, forwardsForUs }).map((step) =>
    step.kind === "sysctl" ? step.key : `rule IPv${step.family}`,
  );
const ACCEPT_RA = ["net/ipv6/conf/eth0/accept_ra", "net/ipv6/conf/eth1/accept_ra"] as const;
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

/** eth0 has an IPv4 default route alone. */
function withUplink(host: NetStack): void {
  const link = host.links.create({ kind: "bridge", name: "eth0", up: true });
  host.addresses.add({ linkIndex: link.index, address: IpAddress.parse("192.0.2.2"), prefixLength: 24 });
  host.routes.add({
    ...{ dst: Cidr.parse("0.0.0.0/0"), gateway: IpAddress.parse("192.0.2.1"), linkIndex: link.index, table: 254 },
  });
}

test("isHardware: a device of the machine has no kind", () => {
  assert.deepEqual(
    [{ name: "eth0" }, { name: "lo" }, { name: "docker0", kind: "bridge" }, { name: "veth1", kind: "veth" }].map(
      isHardware,
    ),
    [true, false, false, false],
  );
});

for (const { name, before, want, forwardsForUs } of [
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
    want: [FORWARDING[0], ...ACCEPT_RA, FORWARDING[1], "rule IPv4", "rule IPv6"],
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
    name: "one whose router has not spoken yet: an uplink is known by its IPv4 route, and a bridge without a route is none",
    before: (host: NetStack) => {
      withUplink(host);
      host.links.create({ kind: "bridge", name: "other", up: true });
    },
    want: [FORWARDING[0], ACCEPT_RA[0], FORWARDING[1], "rule IPv4", "rule IPv6"],
  },
  {
    name: "one that coild made forward before it had an uplink",
    before: (host: NetStack) => {
      applyHost(host, planHost(host, OPTIONS));
      withUplink(host);
    },
    forwardsForUs: true,
    want: [ACCEPT_RA[0]],
  },
  {
    name: "one that somebody else made forward, and ignores router advertisements on purpose",
    before: (host: NetStack) => {
      applyHost(host, planHost(host, OPTIONS));
      withUplink(host);
    },
    want: [],
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
    assert.deepEqual(planned(host, { forwardsForUs }), want);
  });
}
