import { createHash } from "node:crypto";
import type { IpAddress, IpFamily } from "#base/ip";
import type { PlannedLink } from "../net-plan/index.ts";
import type { TunnelDriver, TunnelEnd, TunnelParts } from "./driver.ts";

/** IPPROTO_IPIP and IPPROTO_IPV6 of linux/in.h: the inner protocol of the tunnels of each family. */
const INNER_PROTOCOL = { 4: 4, 6: 41 } as const;
const KIND = { 4: "ipip", 6: "ip6tnl" } as const;
/** An outer IP header and a UDP header, and in IPv6 the option that limits encapsulations (RFC 2473 section 4.1.1), which ip6tnl adds. */
const OVERHEAD = { 4: 28, 6: 56 } as const;
const TTL = 225;
/** The links that take packets of any tunnel, because a router answers from its own address and not from the Service's. */
const RECEIVER = { 4: "coil_ipip4", 6: "coil_ipip6" } as const;

/** Behind UDP's header (64 bits): `saddr` of struct iphdr and of struct ipv6hdr. */
const SOURCE_BIT = { 4: 64 + 96, 6: 64 + 64 } as const;

/** Foo over UDP: one ipip or ip6tnl link for each peer, with Coil's names and options (docs/spec/pod-network.md#7.1). */
export const fouDriver: TunnelDriver = {
  name: "fou",
  overhead: (family) => OVERHEAD[family],
  routerLinks: ["fou4_*", "fou6_*", RECEIVER[4], RECEIVER[6]],
  // The kernel takes the family from the port, and drops a packet that says another one.
  wrapped: (family) => ({ fixed: [], sourceBit: SOURCE_BIT[family] }),
  wrap: (_family, _egress, packet) => Buffer.from(packet),
  clientBase: (family, port) => ({ settings: settingsOf(family), ...baseOf(family, port) }),
  routerBase: ({ local: { family } }, port) => ({ settings: new Map(), ...baseOf(family, port) }),
  toGateway: (end, { address, sourcePortAuto }, port) => tunnelTo(end, address, { sourcePortAuto, port }),
  toClient: (end, client, { sourcePortAuto }, port) => tunnelTo(end, client, { sourcePortAuto, port }),
};

/** The name of the tunnel to an address: in IPv4 the address itself, in IPv6 its hash. */
function fouLinkName(address: IpAddress): string {
  return address.family === 4 ? `fou4_${Buffer.from(address.toBytes()).toString("hex")}` : `fou6_${hashOf(address)}`;
}

/** The settings that Coil makes in a pod. */
function settingsOf(family: IpFamily): ReadonlyMap<string, string> {
  return new Map([family === 4 ? ["net.ipv4.ip_forward", "1"] : ["net.ipv6.conf.all.forwarding", "1"]]);
}

function baseOf(family: IpFamily, port: number) {
  const receiver: PlannedLink = {
    spec: { kind: KIND[family], name: RECEIVER[family], external: true },
    arp: true,
    neighbours: [],
  };
  return { fouPorts: [{ family, port, ipProtocol: INNER_PROTOCOL[family] }], links: [receiver] };
}

function tunnelTo(
  { local, mtuBytes }: TunnelEnd,
  remote: IpAddress,
  { sourcePortAuto, port }: { readonly sourcePortAuto: boolean; readonly port: number },
): TunnelParts {
  const { family } = local;
  const name = fouLinkName(remote);
  const link: PlannedLink = {
    spec: {
      kind: KIND[family],
      name,
      mtu: mtuBytes - OVERHEAD[family],
      local,
      remote,
      ttl: TTL,
      encap: { type: "fou", sourcePort: sourcePortAuto ? 0 : port, destinationPort: port },
    },
    arp: true,
    neighbours: [],
  };
  return { links: [link], way: { link: name } };
}

/** First eight hex digits of sha1(the bytes of an address). */
function hashOf(address: IpAddress): string {
  return createHash("sha1").update(address.toBytes()).digest("hex").slice(0, 8);
}
