import type { IpAddress, IpFamily } from "#base/ip";
import type { ConntrackEntry, ConntrackPort } from "#kernel/conntrack";
import { PROTOCOL_NUMBERS } from "../model/index.ts";
import type { TrackedPort } from "../track/index.ts";

/** Destinations of UDP Services, and who may answer for each. */
export interface UdpFrontEnds {
  /** `address port` to the `address port` of those that serve. */
  readonly byAddress: ReadonlyMap<string, ReadonlySet<string>>;
  readonly byNodePort: ReadonlyMap<number, ReadonlySet<string>>;
}

/**
 * Pure. Who serves counts, ending or not, whatever policies and topology say: graceful endpoints keep their flows, and a change of
 * policy cuts none (spec service-proxy 2.11). A Service without serving endpoints has an empty list: all its flows are stale.
 */
export function udpFrontEnds(ports: Iterable<TrackedPort>): UdpFrontEnds {
  const byAddress = new Map<string, Set<string>>();
  const byNodePort = new Map<number, Set<string>>();
  for (const { port, endpoints } of ports) {
    if (port.protocol !== "UDP") continue;
    const serving = endpoints.filter((one) => one.serving).map((one) => place(one.address, one.port));
    for (const address of [port.clusterIP, ...port.loadBalancerIPs, ...port.externalIPs]) {
      add(byAddress, place(address, port.port), serving);
    }
    if (port.nodePort > 0) add(byNodePort, port.nodePort, serving);
  }
  return { byAddress, byNodePort };
}

/** Pure: whether a tracked flow goes to somebody who does not serve its front end, so that it must be balanced anew. */
export function isStale(
  { original, reply }: ConntrackEntry,
  frontEnds: UdpFrontEnds,
  isNodePortAddress: (address: IpAddress) => boolean,
): boolean {
  const { dst, dstPort } = original;
  if (dstPort === undefined || reply.srcPort === undefined) return false;
  const serving =
    frontEnds.byAddress.get(place(dst, dstPort)) ??
    // A port number alone says little: a pod may talk to an outside host at that port.
    (isNodePortAddress(dst) ? frontEnds.byNodePort.get(dstPort) : undefined);
  return serving !== undefined && !serving.has(place(reply.src, reply.srcPort));
}

/** Forgets stale flows; how many. One reading of the table. Throws `KernelError`. */
export function forgetStale(
  conntrack: ConntrackPort,
  family: IpFamily,
  ports: Iterable<TrackedPort>,
  isNodePortAddress: (address: IpAddress) => boolean,
): number {
  const frontEnds = udpFrontEnds(ports);
  if (frontEnds.byAddress.size + frontEnds.byNodePort.size === 0) return 0;
  return conntrack.delete({ family, protocol: PROTOCOL_NUMBERS.UDP }, (entry) =>
    isStale(entry, frontEnds, isNodePortAddress),
  );
}

function place(address: IpAddress, port: number): string {
  return `${address} ${port}`;
}

function add<K>(map: Map<K, Set<string>>, key: K, serving: readonly string[]): void {
  const known = map.get(key) ?? new Set();
  for (const one of serving) known.add(one);
  map.set(key, known);
}
