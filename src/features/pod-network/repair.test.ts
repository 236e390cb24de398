import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";
import type { Route } from "#kernel/route";
import { hostMacOf, linkLocalOf } from "./plan.ts";
import { planRepair } from "./repair.ts";

const NODE = { ipv4: undefined, ipv6: IpAddress.parse("2001:db8::1") };
const link = (index: number, changes: Partial<Link> = {}): Link => ({
  index,
  name: `veth0000000${index}`,
  kind: "veth",
  mac: hostMacOf(`veth0000000${index}`),
  mtu: 1500,
  up: true,
  operState: "up",
  flags: 1,
  group: 0,
  ...changes,
});
const gateway = String(linkLocalOf(hostMacOf("veth00000001")));
const other = hostMacOf("another");

for (const { name, of, addresses, routed, present, gateway4, want } of [
  { name: "a whole link lacks nothing", of: link(1), addresses: ["10.1.0.2"], routed: { "10.1.0.2/32": 1 }, want: [] },
  { name: "a missing route", of: link(1), addresses: ["10.1.0.2"], want: ["route 10.1.0.2/32"] },
  { name: "a link that is down stays so", of: link(1, { up: false }), addresses: ["10.1.0.2"], want: [] },
  {
    name: "an address that another link has a route for is left alone",
    of: link(1),
    addresses: ["10.1.0.2"],
    routed: { "10.1.0.2/32": 9 },
    want: [],
  },
  {
    name: "IPv6: gateway, the node's address and the route",
    of: link(1),
    addresses: ["fd01::2"],
    want: [`address ${gateway}`, "address 2001:db8::1", "route fd01::2/128"],
  },
  {
    name: "IPv6: only the node's address is missing",
    of: link(1),
    addresses: ["fd01::2"],
    routed: { "fd01::2/128": 1 },
    present: [gateway],
    want: ["address 2001:db8::1"],
  },
  {
    name: "IPv6: a link of another program makes its gateway itself",
    of: link(1, { mac: other }),
    addresses: ["fd01::2"],
    want: ["route fd01::2/128"],
  },
  {
    name: "IPv4: a link that lost the gateway's address gets it, one that has any IPv4 address does not",
    of: link(1),
    addresses: ["10.1.0.2"],
    routed: { "10.1.0.2/32": 1 },
    gateway4: "192.0.2.1",
    want: ["address 192.0.2.1"],
  },
  {
    name: "IPv4: an earlier address of the node stays the gateway",
    of: link(1),
    addresses: ["10.1.0.2"],
    routed: { "10.1.0.2/32": 1 },
    present: ["192.0.2.9"],
    gateway4: "192.0.2.1",
    want: [],
  },
  {
    name: "IPv4: a link of another program keeps what that program gave it",
    of: link(1, { mac: other }),
    addresses: ["10.1.0.2"],
    routed: { "10.1.0.2/32": 1 },
    gateway4: "192.0.2.1",
    want: [],
  },
] as const) {
  test(`planRepair: ${name}`, () => {
    const routes = Object.entries(routed ?? {}).map(
      ([dst, linkIndex]) => ({ dst: Cidr.parse(dst), linkIndex }) as Route,
    );
    const steps = planRepair(
      [{ link: of, addresses: addresses.map((text) => IpAddress.parse(text)) }],
      {
        routes,
        addresses: (present ?? []).map((text) => ({ linkIndex: of.index, address: IpAddress.parse(text) }) as Address),
      },
      NODE,
      gateway4 === undefined ? undefined : IpAddress.parse(gateway4),
    );
    assert.deepEqual(
      steps.map((step) => (step.kind === "route" ? `route ${step.dst}` : `address ${step.address.address}`)),
      want,
    );
  });
}
