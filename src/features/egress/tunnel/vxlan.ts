import { createHash } from "node:crypto";
import { IpAddress, MacAddress } from "#base/ip";
import type { PlannedLink } from "../net-plan/index.ts";
import type { TunnelDriver, TunnelEnd } from "./driver.ts";

/** Outer IP and UDP headers, VXLAN's header and the inner Ethernet header. */
const OVERHEAD = { 4: 50, 6: 70 } as const;
/** The kernel drops a frame whose source address is its own, so the two ends have different ones. */
const MAC = {
  client: MacAddress.parse("02:00:00:00:55:01"),
  router: MacAddress.parse("02:00:00:00:55:02"),
};
/** The inner next hops; permanent neighbours, never on a wire. */
const HOP = {
  client: { 4: IpAddress.parse("169.254.55.2"), 6: IpAddress.parse("fe80::55:1") },
  router: { 4: IpAddress.parse("169.254.55.1"), 6: IpAddress.parse("fe80::55:2") },
};
/** The one link of a router. */
const ROUTER_LINK = "coil_vxlan";

/** The EtherTypes by family (linux/if_ether.h). A frame with a VLAN tag has another one here, also where the kernel would take its tag off. */
const ETHER_TYPE = { 4: Uint8Array.of(0x08, 0x00), 6: Uint8Array.of(0x86, 0xdd) };
/** Behind UDP's header (64 bits), VXLAN's (64) and Ethernet's (112): `saddr` of struct iphdr and of struct ipv6hdr. */
const SOURCE_BIT = { 4: 240 + 96, 6: 240 + 64 } as const;

/** VXLAN: one link for each gateway in a client, and one for all clients in a router (docs/spec/pod-network.md#10). */
export const vxlanDriver: TunnelDriver = {
  name: "vxlan",
  overhead: (family) => OVERHEAD[family],
  routerLinks: [ROUTER_LINK],
  wrapped: (family, egress) => ({
    fixed: [
      { bit: 64, value: headerOf(vniOf(egress)) },
      { bit: 224, value: ETHER_TYPE[family] },
    ],
    sourceBit: SOURCE_BIT[family],
  }),
  wrap: (family, egress, packet) =>
    Buffer.concat([
      headerOf(vniOf(egress)),
      ...[MAC.router, MAC.client].map((mac) => mac.toBytes()),
      ETHER_TYPE[family],
      packet,
    ]),
  clientBase: () => ({ settings: new Map(), fouPorts: [], links: [] }),
  routerBase: (end, port) => ({ settings: new Map(), fouPorts: [], links: [routerLink(end, port)] }),
  toGateway: ({ local, mtuBytes }, { address, egress }, port) => {
    const { family } = local;
    const vni = vniOf(egress);
    // The kernel has one link of an identifier and family, so an Egress whose Service got another address keeps the name: the old link goes first.
    const name = `nat_0${family}${vni.toString(16).padStart(6, "0")}`;
    const link: PlannedLink = {
      spec: {
        kind: "vxlan",
        name,
        mtu: mtuBytes - OVERHEAD[family],
        mac: MAC.client,
        vni,
        local,
        remote: address,
        port,
        learning: false,
        // The router's link sends no checksums over IPv6.
        udp6ZeroCsumRx: family === 6,
      },
      arp: false,
      neighbours: [{ address: HOP.router[family], mac: MAC.router }],
    };
    return { links: [link], way: { link: name, gateway: HOP.router[family], onlink: true } };
  },
  toClient: ({ mtuBytes }, client, { egress }) => ({
    links: [],
    way: {
      link: ROUTER_LINK,
      gateway: HOP.client[client.family],
      onlink: true,
      encap: { type: client.family === 4 ? "ip" : "ip6", id: BigInt(vniOf(egress)), dst: client },
      // The MTU of the client's end: a server sends segments of the size that the client's own MTU allows, and may never hear that they are too long.
      ...(client.family === 6 ? { mtu: mtuBytes - OVERHEAD[6] } : {}),
    },
  }),
};

/** One link for both families. Without IPv4 it has the MTU of IPv6, else that of IPv4, and routes of IPv6 have their own. */
function routerLink({ local: { family }, mtuBytes }: TunnelEnd, port: number): PlannedLink {
  return {
    spec: {
      kind: "vxlan",
      name: ROUTER_LINK,
      mtu: mtuBytes - OVERHEAD[family],
      mac: MAC.router,
      external: true,
      port,
      learning: false,
      udp6ZeroCsumRx: true,
    },
    arp: false,
    // Of its own family alone: the kernel refuses others where IPv6 is off, or the MTU is too small for it.
    neighbours: [{ address: HOP.client[family], mac: MAC.client }],
  };
}

/** VXLAN's header (RFC 7348 section 5): the flag that the identifier is valid, and the identifier; all else is 0. */
function headerOf(vni: number): Uint8Array {
  return Uint8Array.of(0x08, 0, 0, 0, vni >> 16, (vni >> 8) & 255, vni & 255, 0);
}

/** The VXLAN network identifier of an Egress, 1 to 2^24-1: both ends compute it from the name. */
export function vniOf({ namespace, name }: { readonly namespace: string; readonly name: string }): number {
  const hash = createHash("sha1").update(`${namespace}/${name}`).digest().readUIntBE(0, 3);
  return hash === 0 ? 1 : hash;
}
