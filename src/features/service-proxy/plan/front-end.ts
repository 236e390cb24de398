import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { ByteString, Verdict } from "#kernel/nft-elements";
import {
  type Endpoint,
  flatText,
  type Protocol,
  type Selection,
  type ServicePort,
  servicePortId,
} from "../model/index.ts";
import { REJECT_CHAIN, type Shape, shapeName } from "../rules/index.ts";
import { addressKey, affinityKey, endpointValue, frontEndText, portBytes } from "./keys.ts";
import { withoutNested } from "./ranges.ts";

/**
 * The content of the kernel for one front end: an address and port, or a NodePort. Endpoints are in slots. A planned front end has them
 * in the order of their text, an observed one in any order (docs/spec/service-proxy.md#2.7).
 */
export interface FrontEnd<Slot = ByteString> {
  /** Key of `service-ips` or `service-nodeports`. */
  readonly key: ByteString;
  readonly isNodePort: boolean;
  /** `namespace/name:port/protocol`; the element's comment. */
  readonly service: string;
  /** Verdict for new connections; absent: new connections are rejected, see `noEndpoints`. */
  readonly verdict: Verdict | undefined;
  /** Verdict for pods and this node, with externalTrafficPolicy Local. */
  readonly localVerdict: Verdict | undefined;
  /** New connections are rejected: the Service has no endpoint in the cluster. */
  readonly noEndpoints: boolean;
  readonly slots: readonly Slot[];
  readonly localSlots: readonly Slot[];
  /** 0: none. */
  readonly affinitySeconds: number;
  /** With affinity: the key of the service port in `affinity`. Front ends that have the same endpoints have one key. */
  readonly affinityKey?: ByteString | undefined;
  /** Allowed source prefixes; absent: all sources; empty: none. */
  readonly sourceRanges: readonly string[] | undefined;
}

/** A front end as listed from the kernel, where slots may be missing. */
export interface ObservedFrontEnd extends FrontEnd<ByteString | undefined> {
  /** True if the sources of packets are checked. Absent: they are checked if the front end has `sourceRanges`. */
  readonly isGuarded?: boolean;
}

/** Identifies a front end of either kind. */
export function frontEndId({ key, isNodePort }: Pick<FrontEnd, "key" | "isNodePort">): string {
  return flatText(isNodePort ? "n" : "i", key);
}

/** The Service of a front end, as `namespace/name`: its text goes on with `:port/protocol` or `/protocol`. */
export function serviceOf({ service }: Pick<FrontEnd, "service">): string {
  const name = service.indexOf("/") + 1;
  const ends = [service.indexOf(":", name), service.indexOf("/", name)].filter((at) => at >= 0);
  return service.slice(0, Math.min(service.length, ...ends));
}

/** Field of the Service that a front end comes from. */
type FrontEndKind = "cluster-ip" | "load-balancer" | "external-ip" | "node-port";

/** Address of a front end; `undefined` for a NodePort. */
interface FrontEndAddress {
  readonly kind: FrontEndKind;
  readonly address: IpAddress | undefined;
}

/** A front end that a Service requests. */
export interface RequestedFrontEnd {
  readonly frontEnd: FrontEnd;
  /** True if the address comes from externalIPs or the load balancer. Another Service may have the same address. */
  readonly isExternal: boolean;
  /** Owner of an address that no Service can have. */
  readonly owner: string | undefined;
}

/** A claim of a Service on an externalIP or a load balancer's address, with its port. */
export interface AddressClaim {
  /** `namespace/name` */
  readonly service: string;
  readonly namespace: string;
  readonly address: IpAddress;
  readonly protocol: Protocol;
  readonly port: number;
  /** True if the address is in `status.loadBalancer`, which a controller writes. */
  readonly isLoadBalancer: boolean;
  /** Key of `service-ips`. */
  readonly key: ByteString;
  /** The address and port as text, as in {@link frontEndText}. */
  readonly frontEnd: string;
}

/** The facts of an address by the cluster's objects. */
export interface ClusterFacts {
  /** True if a Service has the address as its cluster IP. */
  isClusterIP(address: IpAddress): boolean;
  /** A namespace other than `notOf` that has an endpoint at the address; with `at`: at this port of it. */
  otherEndpoint(
    address: IpAddress,
    notOf: string,
    at?: { readonly protocol: Protocol; readonly port: number },
  ): string | undefined;
  /** Another Service than the one named that has the port as NodePort, or for its health check. */
  nodePortOf(protocol: Protocol, port: number, notOf: string): string | undefined;
  /** Ports of the API servers, by the slices of their Service. */
  apiServerPorts(): ReadonlySet<number>;
}

/** The Service does not get the address yet, and nobody is told: whose it is will be known. */
export const UNDECIDED = Symbol("undecided");

/** The owner of an address that a Service claims; `undefined`: the Service gets it. */
export type Owner = string | undefined | typeof UNDECIDED;

/** Decides whether Services get addresses that they claim. */
export interface AddressJudge {
  judge(family: IpFamily, claim: AddressClaim, cluster: ClusterFacts): Owner;
  /** To be called when a Service is gone. */
  forget(service: string): void;
}

export type OwnerOf = (claim: AddressClaim) => Owner;

/** The front ends of a service port. Pure. If several front ends have one key, the first one counts. `nodeIPs`: addresses of this node. */
export function frontEndsOf(
  port: ServicePort,
  selection: Selection,
  nodeIPs: readonly IpAddress[],
  ownerOf: OwnerOf,
): RequestedFrontEnd[] {
  const ranges = rangesOf(port, nodeIPs);
  const lists = { cluster: valuesOf(selection.cluster), local: valuesOf(selection.local), ranges };
  const addresses: FrontEndAddress[] = [
    { kind: "cluster-ip", address: port.clusterIP },
    ...port.loadBalancerIPs.map((address): FrontEndAddress => ({ kind: "load-balancer", address })),
    ...port.externalIPs.map((address): FrontEndAddress => ({ kind: "external-ip", address })),
    ...(port.nodePort > 0 ? [{ kind: "node-port" as const, address: undefined }] : []),
  ];
  const byKey = new Map<ByteString, RequestedFrontEnd>();
  for (const target of addresses) {
    const frontEnd = frontEndOf(port, target, lists, selection.hasEndpoints);
    const id = frontEndId(frontEnd);
    if (byKey.has(id)) continue;
    const isExternal = target.kind === "load-balancer" || target.kind === "external-ip";
    const owner =
      isExternal && target.address !== undefined
        ? ownerOf(claimOf(port, { kind: target.kind, address: target.address }, frontEnd))
        : undefined;
    if (owner !== UNDECIDED) byKey.set(id, { frontEnd, isExternal, owner });
  }
  return [...byKey.values()];
}

function claimOf(
  { namespace, name, protocol, port }: ServicePort,
  { kind, address }: { readonly kind: FrontEndKind; readonly address: IpAddress },
  frontEnd: FrontEnd,
): AddressClaim {
  const service = `${namespace}/${name}`;
  const about = { service, namespace, address, protocol, port, isLoadBalancer: kind === "load-balancer" };
  return { ...about, key: frontEnd.key, frontEnd: frontEndText(frontEnd) };
}

interface Lists {
  readonly cluster: readonly ByteString[];
  readonly local: readonly ByteString[];
  readonly ranges: readonly string[] | undefined;
}

function frontEndOf(port: ServicePort, target: FrontEndAddress, lists: Lists, hasEndpoints: boolean): FrontEnd {
  const isNodePort = target.kind === "node-port";
  const { address } = target;
  const isInternal = target.kind === "cluster-ip";
  const isLocal = (isInternal ? port.internalTrafficPolicy : port.externalTrafficPolicy) === "Local";
  const empty = {
    key:
      address === undefined ? portBytes(port.protocol, port.nodePort) : addressKey(address, port.protocol, port.port),
    isNodePort,
    service: servicePortId(port),
    sourceRanges: target.kind === "load-balancer" ? lists.ranges : undefined,
    verdict: undefined,
    localVerdict: undefined,
    slots: [],
    localSlots: [],
    affinitySeconds: port.affinitySeconds,
    affinityKey: port.affinitySeconds === 0 ? undefined : affinityKeyOf(port, isInternal),
  };
  if (!hasEndpoints) return { ...empty, noEndpoints: true };
  const goTo = (kind: Shape["kind"], count: number): Verdict =>
    count === 0 && kind !== "extl"
      ? { kind: "drop" }
      : { kind: "goto", chain: shapeName({ kind, isNodePort, hasAffinity: port.affinitySeconds > 0, count }) };
  const [n, l] = [lists.cluster.length, lists.local.length];
  const plan = { ...empty, noEndpoints: false };
  if (isInternal && isLocal) return { ...plan, verdict: goTo("lbl", l), localSlots: lists.local };
  if (isInternal) return { ...plan, verdict: goTo("lb", n), slots: lists.cluster };
  if (!isLocal) return { ...plan, verdict: goTo("ext", n), slots: lists.cluster };
  return {
    ...plan,
    verdict: goTo("extl", l),
    localVerdict: goTo("lb", n),
    slots: lists.cluster,
    localSlots: lists.local,
  };
}

/** If one policy is Local, external front ends have other endpoints than the cluster IP, or have them for other clients. */
function affinityKeyOf(port: ServicePort, isInternal: boolean): ByteString {
  const isOne = port.internalTrafficPolicy === "Cluster" && port.externalTrafficPolicy === "Cluster";
  return affinityKey(port.clusterIP, port.protocol, port.port, !isInternal && !isOne);
}

/** The values of the endpoints, sorted by address and port as text: the same endpoints always give the same plan. */
function valuesOf(endpoints: readonly Endpoint[]): ByteString[] {
  const texts = endpoints.map(({ address, port }) => ({ text: `${address}:${port}`, address, port }));
  texts.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0));
  return texts.map(({ address, port }) => endpointValue(address, port));
}

/**
 * Sources that may use the load balancer's addresses. If a range contains the node's address, the load balancer's addresses are allowed
 * too: a node that holds such an address uses it as the source of its packets (docs/spec/service-proxy.md#2.4).
 */
function rangesOf(
  { sourceRanges, loadBalancerIPs }: ServicePort,
  nodeIPs: readonly IpAddress[],
): readonly string[] | undefined {
  if (sourceRanges === undefined) return undefined;
  const isNodeAllowed = nodeIPs.some((address) => sourceRanges.some((range) => range.contains(address)));
  const own = isNodeAllowed ? loadBalancerIPs.map((address) => Cidr.host(address)) : [];
  return withoutNested([...sourceRanges, ...own])
    .map(String)
    .sort();
}

/** The verdict of a front end without endpoints. */
export const NO_ENDPOINTS: Verdict = { kind: "goto", chain: REJECT_CHAIN };
