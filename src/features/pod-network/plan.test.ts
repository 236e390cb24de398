import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { hostMacOf, linkLocalOf, type NodeAddresses, type PlannedAddress, type PlannedRoute, planPod } from "./plan.ts";

const NODE: NodeAddresses = { ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") };
const HOST = "veth12345678";
const GATEWAY6 = String(linkLocalOf(hostMacOf(HOST)));
const address = (one: PlannedAddress): string => `${one.address}/${one.prefixLength} ${one.scope}`;
const route = (one: PlannedRoute): string => `${one.dst} ${one.gateway ?? "on-link"}`;

for (const { name, pod, node, hostLinkLocal, want } of [
  {
    name: "IPv4: the node's address is the gateway",
    pod: { ipv4: "10.1.0.2" },
    node: NODE,
    hostLinkLocal: false,
    want: {
      host: ["192.0.2.1/32 global"],
      pod: ["10.1.0.2/32 global"],
      hostRoutes: ["10.1.0.2/32 on-link"],
      podRoutes: ["192.0.2.1/32 on-link", "0.0.0.0/0 192.0.2.1"],
    },
  },
  {
    name: "IPv4 with --host-link-local",
    pod: { ipv4: "10.1.0.2" },
    node: NODE,
    hostLinkLocal: true,
    want: {
      host: ["169.254.1.1/32 global"],
      pod: ["10.1.0.2/32 global"],
      hostRoutes: ["10.1.0.2/32 on-link"],
      podRoutes: ["169.254.1.1/32 on-link", "0.0.0.0/0 169.254.1.1"],
    },
  },
  {
    name: "IPv6: the gateway is link-local and follows from the link's name",
    pod: { ipv6: "fd01::2" },
    node: NODE,
    hostLinkLocal: false,
    want: {
      host: ["2001:db8::1/128 global", `${GATEWAY6}/64 link`],
      pod: ["fd01::2/128 global"],
      hostRoutes: ["fd01::2/128 on-link"],
      podRoutes: [`::/0 ${GATEWAY6}`],
    },
  },
  {
    name: "both families on a node without addresses",
    pod: { ipv4: "10.1.0.2", ipv6: "fd01::2" },
    node: { ipv4: undefined, ipv6: undefined },
    hostLinkLocal: false,
    want: {
      host: ["169.254.1.1/32 global", `${GATEWAY6}/64 link`],
      pod: ["10.1.0.2/32 global", "fd01::2/128 global"],
      hostRoutes: ["10.1.0.2/32 on-link", "fd01::2/128 on-link"],
      podRoutes: ["169.254.1.1/32 on-link", "0.0.0.0/0 169.254.1.1", `::/0 ${GATEWAY6}`],
    },
  },
] as const) {
  test(`planPod: ${name}`, () => {
    const { ipv4, ipv6 } = pod as { readonly ipv4?: string; readonly ipv6?: string };
    const plan = planPod(
      {
        attachment: { containerId: "abc", ifname: "eth0" },
        pool: "default",
        pod: { namespace: "ns", name: "web" },
        ipv4: ipv4 === undefined ? undefined : IpAddress.parse(ipv4),
        ipv6: ipv6 === undefined ? undefined : IpAddress.parse(ipv6),
      },
      node,
      { hostLinkLocal, mtuBytes: 1400 },
      HOST,
    );
    assert.deepEqual(
      {
        host: plan.hostAddresses.map(address),
        pod: plan.podAddresses.map(address),
        hostRoutes: plan.hostRoutes.map(route),
        podRoutes: plan.podRoutes.map(route),
      },
      want,
    );
    assert.deepEqual(
      [plan.alias, plan.pendingAlias, plan.podName, plan.mtuBytes, plan.hasIpv6],
      ["COIL:default:abc:eth0", "COIL-PENDING:abc:eth0", "eth0", 1400, ipv6 !== undefined],
    );
  });
}
