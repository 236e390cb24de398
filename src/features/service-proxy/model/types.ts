import type { Cidr, IpAddress, IpFamily } from "#base/ip";
import { flatText } from "./packed.ts";

/** Protocol of a Service's port. */
export type Protocol = "TCP" | "UDP" | "SCTP";

/** IP protocol numbers (IANA). */
export const PROTOCOL_NUMBERS: Readonly<Record<Protocol, number>> = { TCP: 6, UDP: 17, SCTP: 132 };

/** One port of a Service in one family (docs/spec/service-proxy.md#2.1). Immutable. */
export interface ServicePort {
  readonly namespace: string;
  readonly name: string;
  /** Empty if the Service has only this port and gives it no name. */
  readonly portName: string;
  readonly protocol: Protocol;
  readonly family: IpFamily;
  readonly clusterIP: IpAddress;
  /** Port at the cluster IP, externalIPs and load balancer addresses. */
  readonly port: number;
  /** 0: the service port has no NodePort. */
  readonly nodePort: number;
  readonly externalIPs: readonly IpAddress[];
  /** The addresses from `status.loadBalancer.ingress`, with `ipMode` VIP. */
  readonly loadBalancerIPs: readonly IpAddress[];
  /** Sources that may use the load balancer's addresses; `undefined`: all; empty: none. */
  readonly sourceRanges: readonly Cidr[] | undefined;
  readonly externalTrafficPolicy: "Cluster" | "Local";
  readonly internalTrafficPolicy: "Cluster" | "Local";
  /** The time for which a client stays with its endpoint, in seconds; 0: no affinity. */
  readonly affinitySeconds: number;
  /** The time for which a UDP flow stays with an endpoint that is not ready any more, in seconds. Absent: the flow does not stay. */
  readonly unreadyFlowSeconds?: number | undefined;
  /** Used by Services of type LoadBalancer with externalTrafficPolicy Local; 0: there is no such port. */
  readonly healthCheckNodePort: number;
  /** Milliseconds since the epoch. If two Services claim one address and port, the older Service holds both. */
  readonly createdAt: number;
}

/** One address and port behind a service port (docs/spec/service-proxy.md#2.1). Immutable. */
export interface Endpoint {
  readonly address: IpAddress;
  readonly port: number;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** True if the endpoint is on this node. */
  readonly isLocal: boolean;
  /** `hints.forZones`. */
  readonly zoneHints: readonly string[];
  /** `hints.forNodes`. */
  readonly nodeHints: readonly string[];
}

/** This node. */
export interface NodeInfo {
  readonly name: string;
  /** Label `topology.kubernetes.io/zone`. */
  readonly zone: string | undefined;
}

/** `namespace/name:port/protocol`, for comments of elements and for logs. */
export function servicePortId(port: Pick<ServicePort, "namespace" | "name" | "portName" | "protocol">): string {
  const { namespace, name, portName, protocol } = port;
  return flatText(namespace, "/", name, portName === "" ? "" : ":", portName, "/", protocol);
}

/** True if the service port can be reached from outside the cluster (docs/spec/service-proxy.md#2.1). */
export function isExternallyAccessible(port: ServicePort): boolean {
  return port.nodePort > 0 || port.loadBalancerIPs.length > 0 || port.externalIPs.length > 0;
}
