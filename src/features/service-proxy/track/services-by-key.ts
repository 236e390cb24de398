import type { IpFamily } from "#base/ip";
import type { Protocol, ServicePort } from "../model/index.ts";
import { lenientAddress } from "./address.ts";
import type { SliceView } from "./slice.ts";

/** The key of a port: protocol and number. */
export function keyOf({ protocol, port }: { readonly protocol: Protocol; readonly port: number }): string {
  return `${protocol} ${port}`;
}

/** The keys of a slice's ports, computed once for each slice in `known`. */
export function portsIn(slice: SliceView, known: Map<SliceView, ReadonlySet<string>>): ReadonlySet<string> {
  const found = known.get(slice) ?? new Set(slice.ports.map(keyOf));
  known.set(slice, found);
  return found;
}

/** Spellings of addresses that may not be those of `IpAddress`. */
const ODD_SPELLING = /\s|[A-F]|(^|[.:])0[\da-f]|:0(:|$)/;

/** An endpoint's address as `IpAddress` spells it: mostly it is spelt so. */
export function canonical(address: string, family: IpFamily): string {
  return ODD_SPELLING.test(address) ? String(lenientAddress(address, family) ?? address) : address;
}

/** External addresses of a Service, load balancers' among them, as text. */
export function externalOf(ports: readonly ServicePort[]): ReadonlySet<string> {
  // All ports of a Service have the same lists.
  const lists = new Set(ports.flatMap(({ externalIPs, loadBalancerIPs }) => [externalIPs, loadBalancerIPs]));
  return new Set([...lists].flatMap((list) => list.map(String)));
}

/** Keys of the ports that a Service offers at external addresses. */
export function externalPortsOf(ports: readonly ServicePort[]): ReadonlySet<string> {
  const claiming = ports.filter(({ externalIPs, loadBalancerIPs }) => externalIPs.length + loadBalancerIPs.length > 0);
  return new Set(claiming.map(({ protocol, port }) => `${protocol} ${port}`));
}

/** NodePorts, and the port of the health check. */
export function nodePortsOf(ports: readonly ServicePort[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const { protocol, nodePort, healthCheckNodePort } of ports) {
    if (nodePort > 0) found.add(`${protocol} ${nodePort}`);
    if (healthCheckNodePort > 0) found.add(`TCP ${healthCheckNodePort}`);
  }
  return found;
}

/** Replaces the keys of a Service in an index of Services. */
export function replace(
  index: Map<string, Set<string>>,
  service: string,
  before: ReadonlySet<string>,
  after: ReadonlySet<string>,
): void {
  for (const key of before) {
    const services = index.get(key);
    services?.delete(service);
    if (services?.size === 0) index.delete(key);
  }
  for (const key of after) {
    const services = index.get(key);
    if (services === undefined) index.set(key, new Set([service]));
    else services.add(service);
  }
}
