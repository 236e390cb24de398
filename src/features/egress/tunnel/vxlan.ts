import { createHash } from "node:crypto";
import { IpAddress, type IpFamily, MacAddress } from "#base/ip";
import type { PlannedLink } from "../net-plan/index.ts";
import type { TunnelDriver } from "./driver.ts";

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

/** VXLAN: one link for each gateway in a client, and one for all clients in a router (docs/spec/pod-network.md#10). */
export const vxlanDriver: TunnelDriver = {
  name: "vxlan",
  overhead: (family) => OVERHEAD[family],
  clientBase: () => ({ settings: new Map(), fouPorts: [], links: [] }),
  routerBase: ({ mtuBytes }, port) => ({
    settings: new Map(),
    fouPorts: [],
    links: [routerLink(mtuBytes, port)],
  }),
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
  toClient: ({ mtuBytes }, client, { egress }, port) => ({
    links: [routerLink(mtuBytes, port)],
    way: {
      link: ROUTER_LINK,
      gateway: HOP.client[client.family],
      onlink: true,
      encap: { type: client.family === 4 ? "ip" : "ip6", id: BigInt(vniOf(egress)), dst: client },
    },
  }),
};

/** One link for both families; its MTU is that of the family with the longer headers. */
function routerLink(mtuBytes: number, port: number): PlannedLink {
  const families: readonly IpFamily[] = [4, 6];
  return {
    spec: {
      kind: "vxlan",
      name: ROUTER_LINK,
      mtu: mtuBytes - OVERHEAD[6],
      mac: MAC.router,
      external: true,
      port,
      learning: false,
      udp6ZeroCsumRx: true,
    },
    arp: false,
    neighbours: families.map((family) => ({ address: HOP.client[family], mac: MAC.client })),
  };
}

/** The VXLAN network identifier of an Egress, 1 to 2^24-1: both ends compute it from the name. */
export function vniOf({ namespace, name }: { readonly namespace: string; readonly name: string }): number {
  const hash = createHash("sha1").update(`${namespace}/${name}`).digest().readUIntBE(0, 3);
  return hash === 0 ? 1 : hash;
}
