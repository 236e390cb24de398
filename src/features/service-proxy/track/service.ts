import type { Cidr, IpFamily } from "#base/ip";
import type { Service } from "#kube/client";
import { type Protocol, packed, type ServicePort } from "../model/index.ts";
import { lenientAddress, lenientCidr } from "./address.ts";

/** Label of Services that another proxy serves; the watch leaves them out. */
export const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";
/**
 * Annotation of Services, in seconds, 1 to 300: their UDP flows stay with an endpoint that is not ready any more for this time. For endpoints whose kernel goes on while their process starts
 * again, as a router of an Egress.
 */
export const UNREADY_FLOWS_ANNOTATION = "isthmus.dev/unready-udp-flow-seconds";
const MAX_UNREADY_FLOW_SECONDS = 300;
const DEFAULT_AFFINITY_SECONDS = 10_800;
const MAX_AFFINITY_SECONDS = 86_400;

/** Options for reading a Service. */
export interface ServiceOptions {
  /** Gate `AllowServiceExternalIPs`. */
  readonly allowExternalIPs: boolean;
}

/** The ports of a Service in one family; empty for a Service that has no rules (docs/spec/service-proxy.md#2.1). Pure. */
export function portsOf(
  service: Pick<Service, "metadata" | "spec" | "status">,
  family: IpFamily,
  options: ServiceOptions,
): readonly ServicePort[] {
  const { metadata, spec, status } = service;
  if (spec === undefined || spec.type === "ExternalName" || spec.clusterIP === "None") return [];
  const clusterIP = clusterIPOf(spec, family);
  if (clusterIP === undefined) return [];
  const common = {
    namespace: metadata.namespace ?? "",
    name: metadata.name,
    family,
    clusterIP,
    externalIPs: options.allowExternalIPs
      ? packed((spec.externalIPs ?? []).flatMap((text) => lenientAddress(text, family) ?? []))
      : [],
    loadBalancerIPs: packed(loadBalancerIPs(status, family)),
    sourceRanges: allowedSources(spec, family),
    externalTrafficPolicy: spec.externalTrafficPolicy === "Local" ? ("Local" as const) : ("Cluster" as const),
    internalTrafficPolicy: spec.internalTrafficPolicy === "Local" ? ("Local" as const) : ("Cluster" as const),
    affinitySeconds: affinitySeconds(spec),
    healthCheckNodePort: healthCheckNodePort(spec),
    createdAt: Date.parse(metadata.creationTimestamp ?? "") || 0,
  };
  const unready = unreadyFlowSeconds(metadata.annotations?.[UNREADY_FLOWS_ANNOTATION]);
  const ports = (spec.ports ?? []).flatMap((port): ServicePort[] => {
    const protocol = protocolOf(port.protocol);
    const number = portNumber(port.port);
    if (protocol === undefined || number === undefined) return [];
    const own = { portName: port.name ?? "", protocol, port: number, nodePort: portNumber(port.nodePort) ?? 0 };
    return [{ ...common, ...own, ...(protocol === "UDP" && unready > 0 ? { unreadyFlowSeconds: unready } : {}) }];
  });
  return packed(ports);
}

/** Reads a protocol; `undefined` if Services cannot have it. */
export function protocolOf(text: string | undefined): Protocol | undefined {
  if (text === undefined || text === "TCP") return "TCP";
  return text === "UDP" || text === "SCTP" ? text : undefined;
}

/** The value if it is a port, 1 to 65535; else `undefined`. */
export function portNumber(value: number | undefined): number | undefined {
  return value !== undefined && Number.isInteger(value) && value > 0 && value < 65_536 ? value : undefined;
}

/** The cluster IP of the family. Services of older API servers have only `clusterIP`. */
function clusterIPOf(spec: NonNullable<Service["spec"]>, family: IpFamily): ServicePort["clusterIP"] | undefined {
  const candidates =
    spec.clusterIPs !== undefined && spec.clusterIPs.length > 0 ? spec.clusterIPs : [spec.clusterIP ?? ""];
  for (const text of candidates) {
    const address = lenientAddress(text, family);
    if (address !== undefined) return address;
  }
  return undefined;
}

/**
 * The health check port; 0 for other types and policies: a port that remains from an earlier type or policy does not count
 * (docs/spec/service-proxy.md#1.5).
 */
function healthCheckNodePort(spec: NonNullable<Service["spec"]>): number {
  const counts = spec.type === "LoadBalancer" && spec.externalTrafficPolicy === "Local";
  return counts ? (portNumber(spec.healthCheckNodePort) ?? 0) : 0;
}

interface Ingress {
  readonly ip?: string;
  readonly ipMode?: string;
}

/** Load balancer addresses that packets have as destination when they arrive here: not those of `ipMode` `Proxy`. */
function loadBalancerIPs(status: Service["status"], family: IpFamily): ServicePort["loadBalancerIPs"] {
  const ingress = (status?.loadBalancer?.ingress ?? []) as readonly Ingress[];
  return ingress.flatMap(({ ip, ipMode }) => {
    if (ipMode !== undefined && ipMode !== "VIP") return [];
    return lenientAddress(ip, family) ?? [];
  });
}

/** The prefixes of `spec.loadBalancerSourceRanges`, and the entries that are none. Pure. */
export function sourceRangesOf(spec: NonNullable<Service["spec"]>): {
  readonly ranges: readonly Cidr[];
  readonly unreadable: readonly string[];
} {
  const texts = spec.loadBalancerSourceRanges ?? [];
  const read = texts.map((text) => [text, lenientCidr(text)] as const);
  return {
    ranges: read.flatMap(([, cidr]) => cidr ?? []),
    unreadable: read.flatMap(([text, cidr]) => (cidr === undefined ? text : [])),
  };
}

/**
 * The sources of a family that may use a load balancer's addresses; `undefined`: all. A list that has ranges of the other family alone is none for this family, as
 * with kube-proxy. An entry that cannot be read allows nobody, and does not make the list an empty one.
 */
function allowedSources(spec: NonNullable<Service["spec"]>, family: IpFamily): ServicePort["sourceRanges"] {
  const { ranges, unreadable } = sourceRangesOf(spec);
  const own = ranges.filter((range) => range.family === family);
  if (own.length === 0 && unreadable.length === 0) return undefined;
  return own.some(({ prefixLength }) => prefixLength === 0) ? undefined : packed(own);
}

/** 0 for a value that is none. */
function unreadyFlowSeconds(text = ""): number {
  const seconds = Number(text);
  const isSome = Number.isInteger(seconds) && seconds >= 1 && seconds <= MAX_UNREADY_FLOW_SECONDS;
  return isSome && String(seconds) === text ? seconds : 0;
}

function affinitySeconds(spec: NonNullable<Service["spec"]>): number {
  if (spec.sessionAffinity !== "ClientIP") return 0;
  const seconds = spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? DEFAULT_AFFINITY_SECONDS;
  return Math.min(MAX_AFFINITY_SECONDS, Math.max(1, Math.floor(seconds) || 1));
}
