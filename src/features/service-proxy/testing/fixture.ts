/**
 * A small cluster for tests of the data plane, in either family: one node under test, a pod and an endpoint on it, an endpoint
 * elsewhere, a client outside. The tracer and real packets must agree in every row of the traffic matrix.
 */
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { ByteString } from "#kernel/nft-elements";
import type { Endpoint, NodeInfo, Protocol, ServicePort } from "../model/index.ts";
import {
  addressBytes,
  type ObservedFrontEnd,
  type PortWithEndpoints,
  planService,
  WantedTable,
} from "../plan/index.ts";
import type { PodDetector, RuleOptions } from "../rules/index.ts";
import { type Packet, type TraceContext, type TracedTable, traceContext } from "../trace/index.ts";

/** The sender of a packet. */
export type Sender = "pod" | "node" | "external";

/** Addresses of one family. */
export interface Addresses {
  readonly pods: Cidr;
  readonly pod: IpAddress;
  readonly localEndpoint: IpAddress;
  readonly remoteEndpoint: IpAddress;
  /** The node's external address. */
  readonly node: IpAddress;
  readonly external: IpAddress;
  readonly serviceCIDR: Cidr;
  readonly clusterIP: IpAddress;
  readonly loadBalancerIP: IpAddress;
  readonly externalIP: IpAddress;
}

const TEXTS: Readonly<Record<IpFamily, Readonly<Record<keyof Addresses, string>>>> = {
  4: {
    pods: "10.180.0.0/16",
    pod: "10.180.0.20",
    localEndpoint: "10.180.0.10",
    remoteEndpoint: "10.180.1.10",
    node: "198.51.100.1",
    external: "198.51.100.9",
    serviceCIDR: "172.30.0.0/16",
    clusterIP: "172.30.0.41",
    loadBalancerIP: "203.0.113.4",
    externalIP: "203.0.113.99",
  },
  6: {
    pods: "fd00:10:180::/48",
    pod: "fd00:10:180::20",
    localEndpoint: "fd00:10:180::10",
    remoteEndpoint: "fd00:10:180:1::10",
    node: "2001:db8:51::1",
    external: "2001:db8:51::9",
    serviceCIDR: "fd00:172:30::/112",
    clusterIP: "fd00:172:30::41",
    loadBalancerIP: "2001:db8:113::4",
    externalIP: "2001:db8:113::99",
  },
};

/** Addresses of a family. */
export function addressesOf(family: IpFamily): Addresses {
  const texts = TEXTS[family];
  const address = (key: keyof Addresses): IpAddress => IpAddress.parse(texts[key]);
  return {
    pods: Cidr.parse(texts.pods),
    serviceCIDR: Cidr.parse(texts.serviceCIDR),
    pod: address("pod"),
    localEndpoint: address("localEndpoint"),
    remoteEndpoint: address("remoteEndpoint"),
    node: address("node"),
    external: address("external"),
    clusterIP: address("clusterIP"),
    loadBalancerIP: address("loadBalancerIP"),
    externalIP: address("externalIP"),
  };
}

export const NODE: NodeInfo = { name: "node-a", zone: undefined };
export const SERVICE_PORT = 80;
export const NODE_PORT = 30_080;
export const TARGET_PORT = 8080;

/** A service port with every kind of front end. */
export function servicePort(family: IpFamily, changes: Partial<ServicePort> = {}): ServicePort {
  const { clusterIP, loadBalancerIP, externalIP } = addressesOf(family);
  return {
    namespace: "ns",
    name: "svc",
    portName: "http",
    protocol: "TCP",
    family,
    clusterIP,
    port: SERVICE_PORT,
    nodePort: NODE_PORT,
    externalIPs: [externalIP],
    loadBalancerIPs: [loadBalancerIP],
    sourceRanges: undefined,
    externalTrafficPolicy: "Cluster",
    internalTrafficPolicy: "Cluster",
    affinitySeconds: 0,
    healthCheckNodePort: 0,
    createdAt: 0,
    ...changes,
  };
}

/** A ready endpoint on this node or on another one. */
export function endpoint(family: IpFamily, where: "local" | "remote", changes: Partial<Endpoint> = {}): Endpoint {
  const { localEndpoint, remoteEndpoint } = addressesOf(family);
  return {
    address: where === "local" ? localEndpoint : remoteEndpoint,
    port: TARGET_PORT,
    ready: true,
    serving: true,
    terminating: false,
    isLocal: where === "local",
    zoneHints: [],
    nodeHints: [],
    ...changes,
  };
}

/** The rules of a test. */
export function ruleOptions(family: IpFamily, changes: Partial<RuleOptions> = {}): RuleOptions {
  const detector: PodDetector = { kind: "source", cidr: addressesOf(family).pods };
  return { family, mark: 0x4000, detector, masqueradeAll: false, nodePortAddresses: "set", ...changes };
}

/** The wanted table of a few service ports. */
export function wantedOf(family: IpFamily, ports: readonly PortWithEndpoints[]): WantedTable {
  const wanted = new WantedTable();
  const byService = Map.groupBy(ports, ({ port }) => `${port.namespace}/${port.name}`);
  for (const [service, own] of byService) wanted.set(service, planService(own, NODE, [addressesOf(family).node]));
  return wanted;
}

/** The same as a table for the tracer. */
export function tableOf(family: IpFamily, wanted: WantedTable): TracedTable {
  const { node, serviceCIDR } = addressesOf(family);
  return {
    frontEnds: new Map<string, ObservedFrontEnd>(wanted.frontEnds()),
    clusterIPs: wanted.clusterIPs,
    hairpinEndpoints: wanted.hairpinEndpoints,
    nodePortIPs: new Set<ByteString>([addressBytes(node)]),
    serviceCIDRs: [serviceCIDR],
  };
}

/** The trace context of a few service ports. */
export function traceContextFor(
  family: IpFamily,
  ports: readonly PortWithEndpoints[],
  options = ruleOptions(family),
): TraceContext {
  return traceContext(tableOf(family, wantedOf(family, ports)), options, [addressesOf(family).node]);
}

/** A packet of a sender. */
export function packetOf(
  family: IpFamily,
  sender: Sender,
  destination: IpAddress,
  port: number,
  protocol: Protocol = "TCP",
): Packet {
  const { pod, node, external } = addressesOf(family);
  if (sender === "node") return { source: node, destination, port, protocol };
  if (sender === "pod") return { source: pod, destination, port, protocol, inputInterface: "veth-pod" };
  return { source: external, destination, port, protocol, inputInterface: "eth0" };
}
