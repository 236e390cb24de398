/**
 * ARP and NDP entries of one namespace.
 *
 * Owns: {@link NeighbourPort} and its rtnetlink encoding. Does not know: why an entry is static.
 *
 * ```ts
 * stack.neighbours.replace({ linkIndex, address: IpAddress.parse("169.254.55.1"), mac: routerMac });
 * ```
 */
export { checkNeighbour, decodeNeighbour, describeNeighbour, openNeighbourPort } from "./port.ts";
export type { Neighbour, NeighbourFilter, NeighbourKey, NeighbourPort, NeighbourSpec } from "./types.ts";
