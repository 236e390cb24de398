import type { Cidr, IpAddress } from "#base/ip";
import type { RouteSpec } from "#kernel/route";

/** The table of the routes, and the protocol number that marks them. */
interface Place {
  readonly table: number;
  readonly protocol: number;
}

/** One route `dev lo` for each prefix of this node. A routing daemon can learn these routes (docs/spec/pod-network.md#4.8). Pure. */
export function exportRoutes(prefixes: Iterable<Cidr>, loopbackIndex: number, place: Place): RouteSpec[] {
  return Array.from(prefixes, (dst) => ({
    dst,
    linkIndex: loopbackIndex,
    scope: "global",
    type: "unicast",
    ...place,
  }));
}

/** Another node, and the prefixes of its blocks. */
export interface RouterNode {
  readonly name: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
  readonly prefixes: readonly Cidr[];
}

/** A prefix that cannot be routed, because its node has no address of the family and no route led to it before. */
export interface RouterSkip {
  readonly node: string;
  readonly prefix: Cidr;
}

/**
 * The node, with the gateway of the routes that lead to its prefixes where it has no address of the family: a Node that was deleted, or has
 * lost its addresses, says nothing about its machine. Pure.
 */
export function withKnownWays(node: RouterNode, wayTo: (prefix: Cidr) => IpAddress | undefined): RouterNode {
  const known = (family: 4 | 6): IpAddress | undefined => {
    for (const prefix of node.prefixes) {
      const gateway = prefix.family === family ? wayTo(prefix) : undefined;
      if (gateway !== undefined) return gateway;
    }
    return undefined;
  };
  return { ...node, ipv4: node.ipv4 ?? known(4), ipv6: node.ipv6 ?? known(6) };
}

/** For each prefix of the other nodes, a route through the prefix's node (docs/spec/pod-network.md#6). Pure. */
export function routesToNodes(
  nodes: Iterable<RouterNode>,
  place: Place,
): { readonly routes: RouteSpec[]; readonly skipped: RouterSkip[] } {
  const routes: RouteSpec[] = [];
  const skipped: RouterSkip[] = [];
  for (const node of nodes) {
    for (const dst of node.prefixes) {
      const gateway = dst.family === 4 ? node.ipv4 : node.ipv6;
      if (gateway === undefined) skipped.push({ node: node.name, prefix: dst });
      else routes.push({ dst, gateway, scope: "global", type: "unicast", ...place });
    }
  }
  return { routes, skipped };
}
