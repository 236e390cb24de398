import type { AbortOptions } from "#base/async";
import type { IpAddress, IpFamily } from "#base/ip";
import type { ConntrackEntry, ConntrackPort } from "#kernel/conntrack";
import { type Endpoint, PROTOCOL_NUMBERS, type ServicePort } from "../model/index.ts";
import { addressKey, type FrontEndKey, portBytes, readFrontEndKey } from "../plan/index.ts";
import type { TrackedPort } from "../track/index.ts";

/** Returns true if a service port holds a front end that it claims. If several Services claim one address and port, only one of them holds it. */
export type IsHolder = (port: ServicePort, frontEnd: { readonly key: string; readonly isNodePort: boolean }) => boolean;

/** Returns true if flows stay with an endpoint that is neither ready nor serving (docs/spec/service-proxy.md#2.11). */
export type KeepsFlows = (port: ServicePort, endpoint: Endpoint) => boolean;

/** Destinations of UDP Services, and the endpoints that may answer for each. */
export interface UdpFrontEnds {
  /** `address port` of a front end to the `address port` of its serving endpoints. */
  readonly byAddress: ReadonlyMap<string, ReadonlySet<string>>;
  readonly byNodePort: ReadonlyMap<number, ReadonlySet<string>>;
  /** `address port` of front ends that no Service has any more. */
  readonly goneAddresses: ReadonlySet<string>;
  readonly goneNodePorts: ReadonlySet<number>;
}

/** True if there is no front end at all, so that no flow can be stale. Pure. */
export function hasNone({ byAddress, byNodePort, goneAddresses, goneNodePorts }: UdpFrontEnds): boolean {
  return byAddress.size + byNodePort.size + goneAddresses.size + goneNodePorts.size === 0;
}

/**
 * The front ends of UDP Services and all their serving endpoints, also terminating ones. Traffic policies and topology make no difference:
 * an endpoint that terminates gracefully keeps its flows, and a changed policy deletes no flow (docs/spec/service-proxy.md#2.11). A Service
 * without serving endpoints has an empty list: all its flows are stale. Front ends that another Service holds are left out. `gone`: UDP front
 * ends that no Service holds any more. `keeps`: asked for endpoints that are neither ready nor serving. Pure but for `keeps`.
 */
export function udpFrontEnds(
  ports: Iterable<TrackedPort>,
  holds: IsHolder,
  gone: Iterable<FrontEndKey> = [],
  keeps: KeepsFlows = () => false,
): UdpFrontEnds {
  const byAddress = new Map<string, Set<string>>();
  const byNodePort = new Map<number, Set<string>>();
  for (const { port, endpoints } of ports) {
    if (port.protocol !== "UDP") continue;
    // With `publishNotReadyAddresses`, an endpoint can be ready although it is not serving. Such an endpoint gets new flows, so it also
    // keeps its flows.
    const serving = endpoints
      .filter((one) => one.serving || one.ready || keeps(port, one))
      .map((one) => place(one.address, one.port));
    for (const address of [port.clusterIP, ...port.loadBalancerIPs, ...port.externalIPs]) {
      const key = addressKey(address, port.protocol, port.port);
      if (holds(port, { key, isNodePort: false })) add(byAddress, place(address, port.port), serving);
    }
    const key = portBytes(port.protocol, port.nodePort);
    if (port.nodePort > 0 && holds(port, { key, isNodePort: true })) add(byNodePort, port.nodePort, serving);
  }
  const goneAddresses = new Set<string>();
  const goneNodePorts = new Set<number>();
  for (const one of gone) {
    const { address, port } = readFrontEndKey(one);
    if (address === undefined) goneNodePorts.add(port);
    else goneAddresses.add(place(address, port));
  }
  return { byAddress, byNodePort, goneAddresses, goneNodePorts };
}

/** Addresses of the host, by what they have to do with NodePorts. */
export interface NodePortHost {
  readonly isNodePortAddress: (address: IpAddress) => boolean;
  /** True for an address that took NodePorts and does not any more. Default: there is none. */
  readonly isFormerNodePortAddress?: ((address: IpAddress) => boolean) | undefined;
}

/**
 * True if a tracked flow goes to an address that is not a serving endpoint of the flow's front end: the flow then has to get another
 * endpoint. True too if the flow was translated, and its front end is gone, or its address takes no NodePorts any more. Pure.
 */
export function isStale(
  { original, reply }: ConntrackEntry,
  frontEnds: UdpFrontEnds,
  { isNodePortAddress, isFormerNodePortAddress }: NodePortHost,
): boolean {
  const { dst, dstPort } = original;
  if (dstPort === undefined || reply.srcPort === undefined) return false;
  const { byAddress, byNodePort, goneAddresses, goneNodePorts } = frontEnds;
  const target = place(dst, dstPort);
  const answering = place(reply.src, reply.srcPort);
  const serving =
    byAddress.get(target) ??
    // The port number alone is not enough: a pod may talk to an outside host at that port.
    (isNodePortAddress(dst) ? byNodePort.get(dstPort) : undefined);
  if (serving !== undefined) return !serving.has(answering);
  // A flow that is not translated is one to the address itself, which may be a host's.
  if (answering === target) return false;
  if (goneAddresses.has(target)) return true;
  const isFormer = isFormerNodePortAddress?.(dst) === true;
  return (goneNodePorts.has(dstPort) && (isFormer || isNodePortAddress(dst))) || (isFormer && byNodePort.has(dstPort));
}

/**
 * Deletes stale flows and returns their number. Reads the table once, in slices. `frontEnds` is called for every flow, and again before its
 * deletion: endpoints may come meanwhile. Rejects with `KernelError`.
 */
export async function deleteStaleFlows(
  conntrack: ConntrackPort,
  family: IpFamily,
  frontEnds: () => UdpFrontEnds,
  { signal, ...host }: AbortOptions & NodePortHost,
): Promise<number> {
  const isOurs = (entry: ConntrackEntry): boolean => isStale(entry, frontEnds(), host);
  return conntrack.delete({ family, protocol: PROTOCOL_NUMBERS.UDP }, isOurs, { signal });
}

function place(address: IpAddress, port: number): string {
  return `${address} ${port}`;
}

function add<K>(map: Map<K, Set<string>>, key: K, serving: readonly string[]): void {
  const known = map.get(key) ?? new Set();
  for (const one of serving) known.add(one);
  map.set(key, known);
}
