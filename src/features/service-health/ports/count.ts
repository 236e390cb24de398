import type { IpAddress } from "#base/ip";
import type { Service } from "#kube/client";

/** The fields of a service port and its endpoints that are read; the data plane's ports have them. */
export interface PortView {
  readonly port: {
    readonly namespace: string;
    readonly name: string;
    readonly externalTrafficPolicy: "Cluster" | "Local";
    /** 0: the Service has no health port. */
    readonly healthCheckNodePort: number;
  };
  readonly endpoints: readonly {
    readonly address: IpAddress;
    readonly ready: boolean;
    readonly terminating: boolean;
    readonly isLocal: boolean;
  }[];
}

/** A Service with a health port, in one family. */
export interface ServiceHealth {
  readonly namespace: string;
  readonly name: string;
  /** `spec.healthCheckNodePort`, 1 to 65535. */
  readonly port: number;
  /** Number of addresses on this node that take new connections. */
  readonly localEndpoints: number;
}

/**
 * The health of one Service in one family, from its ports. `undefined` for a Service without a health port
 * (docs/spec/service-proxy.md#1.5). Pure.
 */
export function serviceHealth(ports: readonly PortView[]): ServiceHealth | undefined {
  const [first] = ports;
  if (first === undefined) return undefined;
  const { namespace, name, externalTrafficPolicy, healthCheckNodePort: port } = first.port;
  if (externalTrafficPolicy !== "Local" || port <= 0) return undefined;
  return { namespace, name, port, localEndpoints: countLocal(ports) };
}

/**
 * True if the Service needs a health port and has none, for example because it was written without the API server's allocation. The
 * Service's load balancer then sends no connections to this node. Pure.
 */
export function lacksHealthPort({ spec }: Pick<Service, "spec">): boolean {
  if (spec?.type !== "LoadBalancer" || spec.externalTrafficPolicy !== "Local") return false;
  return (spec.healthCheckNodePort ?? 0) <= 0;
}

/**
 * Counts distinct addresses of ready endpoints. Terminating endpoints never count, even if connections go to them because no endpoint is
 * ready.
 */
function countLocal(ports: readonly PortView[]): number {
  const addresses = new Set<string>();
  for (const { endpoints } of ports) {
    for (const { address, ready, terminating, isLocal } of endpoints) {
      if (ready && !terminating && isLocal) addresses.add(address.toString());
    }
  }
  return addresses.size;
}

/** `namespace/name`. */
export function serviceKey({ namespace, name }: Pick<ServiceHealth, "namespace" | "name">): string {
  return `${namespace}/${name}`;
}
