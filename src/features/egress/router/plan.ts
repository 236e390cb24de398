import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { NetStack } from "#kernel/net";
import { familiesOf } from "#kernel/rule";
import { EGRESS_PROTOCOL, type NetPlan, type NetScope, type PlannedLink } from "../net-plan/index.ts";
import type { GatewayPeer, TunnelDriver } from "../tunnel/index.ts";

/** The router pod. */
export interface RouterPod {
  readonly egress: GatewayPeer["egress"];
  readonly addresses: Readonly<Partial<Record<IpFamily, IpAddress>>>;
  /** The interface to the cluster and to the outside. */
  readonly ifname: string;
  readonly mtuBytes: number;
}

export interface RouterOptions {
  readonly driver: TunnelDriver;
  /** UDP port of the tunnels. */
  readonly port: number;
  readonly sourcePortAuto: boolean;
}

/** Table of the routes to clients. */
export const CLIENT_TABLE = 118;
/** Priority of the rule that leads to it. */
export const CLIENT_RULE = 2000;
const WAY_METRIC = 1024;

/** The kernel objects of a router in its namespace. */
export function routerScope(port: number): NetScope {
  return {
    tables: new Set([CLIENT_TABLE]),
    isOurRule: ({ priority }) => priority === CLIENT_RULE,
    isOurLink: (name) => /^(fou[46]_[0-9a-f]{8}|coil_vxlan|coil_ipip[46])$/.test(name),
    port,
    families: [4, 6],
  };
}

/**
 * Returns true if a namespace is a router's: it has the rule that no client has. What else a router has could be a client's by its marks. Throws `KernelError`.
 */
export function isRouter(net: { readonly rules: Pick<NetStack["rules"], "list"> }): boolean {
  return familiesOf(net.rules).some((family) =>
    net.rules
      .list(family)
      .some(
        ({ priority, table, iif, protocol }) =>
          priority === CLIENT_RULE && table === CLIENT_TABLE && iif !== undefined && protocol === EGRESS_PROTOCOL,
      ),
  );
}

/**
 * Pure: everything that a router needs in its namespace so that packets of `clients` are unwrapped, and answers return to them
 * (docs/spec/pod-network.md#9). Clients of a family that the router lacks are left out. Masquerading is not part of it.
 */
export function planRouter(
  pod: RouterPod,
  clients: Iterable<IpAddress>,
  { driver, port, sourcePortAuto }: RouterOptions,
): NetPlan {
  const ends = ([4, 6] as const).flatMap((family) => {
    const local = pod.addresses[family];
    return local === undefined ? [] : [{ local, mtuBytes: pod.mtuBytes }];
  });
  const bases = ends.map((end) => driver.routerBase(end, port));
  const links = new Map<string, PlannedLink>();
  for (const link of bases.flatMap((base) => base.links)) {
    const other = links.get(link.spec.name);
    links.set(link.spec.name, other === undefined ? link : merged(other, link));
  }
  const routes = [...new Map(Array.from(clients, (address) => [String(address), address])).values()].flatMap(
    (client) => {
      const end = ends.find(({ local }) => local.family === client.family);
      if (end === undefined) return [];
      const tunnel = driver.toClient(end, client, { egress: pod.egress, sourcePortAuto }, port);
      for (const link of tunnel.links) links.set(link.spec.name, link);
      return [
        { dst: Cidr.host(client), table: CLIENT_TABLE, type: "unicast" as const, metric: WAY_METRIC, ...tunnel.way },
      ];
    },
  );
  return {
    settings: new Map([
      ...ends.flatMap(({ local: { family } }) => settingsOf(family, pod.ifname)),
      ...bases.flatMap(({ settings }) => [...settings]),
    ]),
    fouPorts: bases.flatMap(({ fouPorts }) => fouPorts),
    links: [...links.values()],
    rules: ends.map(({ local: { family } }) => ({
      family,
      priority: CLIENT_RULE,
      iif: pod.ifname,
      table: CLIENT_TABLE,
    })),
    routes,
  };
}

/** The one link of both families. */
function merged(one: PlannedLink, other: PlannedLink): PlannedLink {
  const mtu = Math.max(one.spec.mtu ?? 0, other.spec.mtu ?? 0);
  return {
    ...one,
    spec: { ...one.spec, ...(mtu === 0 ? {} : { mtu }) },
    neighbours: [...one.neighbours, ...other.neighbours],
  };
}

/**
 * A router forwards. Packets of clients come in by a tunnel, while the routes to the clients' addresses lead through the interface, so their reverse path
 * is not checked. The effective rp_filter of a link is the larger one of `all` and its own.
 */
function settingsOf(family: IpFamily, ifname: string): [string, string][] {
  if (family === 6) return [["net.ipv6.conf.all.forwarding", "1"]];
  return [
    ["net.ipv4.ip_forward", "1"],
    ["net.ipv4.conf.default.rp_filter", "0"],
    ["net.ipv4.conf.all.rp_filter", "0"],
    [`net/ipv4/conf/${ifname}/rp_filter`, "0"],
  ];
}
