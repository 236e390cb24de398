import type { IpAddress } from "#base/ip";
import { type ServiceHealth, serviceKey } from "./count.ts";

/** Open port and addresses of one Service. */
export interface OpenService {
  readonly port: number;
  readonly addresses: readonly IpAddress[];
}

/** One change of a plan. The changes that close come first. */
export type PortChange =
  | { readonly op: "close"; readonly service: string; readonly addresses: readonly IpAddress[] }
  | { readonly op: "open"; readonly service: ServiceHealth; readonly addresses: readonly IpAddress[] };

/**
 * Pure. The changes from the open listeners to the wanted ones, by Service (`namespace/name`). Closes come before opens, since a port may
 * move from one Service to another. The number of endpoints changes no listener.
 */
export function planPorts(
  wanted: Iterable<ServiceHealth>,
  addresses: readonly IpAddress[],
  open: ReadonlyMap<string, OpenService>,
): PortChange[] {
  const closes: PortChange[] = [];
  const opens: PortChange[] = [];
  const services = new Map(Array.from(wanted, (service) => [serviceKey(service), service] as const));
  for (const [service, { port, addresses: bound }] of open) {
    const isKept = services.get(service)?.port === port;
    const surplus = isKept ? without(bound, addresses) : bound;
    if (surplus.length > 0) closes.push({ op: "close", service, addresses: surplus });
  }
  for (const [key, service] of services) {
    const before = open.get(key);
    const bound = before?.port === service.port ? before.addresses : [];
    const missing = without(addresses, bound);
    if (missing.length > 0) opens.push({ op: "open", service, addresses: missing });
  }
  return [...closes, ...opens];
}

function without(addresses: readonly IpAddress[], others: readonly IpAddress[]): readonly IpAddress[] {
  return addresses.filter((address) => !others.some((other) => other.equals(address)));
}
