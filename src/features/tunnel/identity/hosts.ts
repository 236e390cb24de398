import { IpAddress, unmapped } from "#base/ip";
import type { AgentIdentifiers } from "#wire/konnectivity";

/** The form in which hosts are compared: canonical addresses (IPv4-mapped ones as IPv4), names in lower case without a trailing dot. */
export function canonicalHost(host: string): string {
  const bare = host.startsWith("[") && host.endsWith("]") ? host.slice(1, -1) : host;
  const address = IpAddress.tryParse(bare);
  return address === undefined ? bare.toLowerCase().replace(/\.$/, "") : unmapped(address).toString();
}

/** The hosts that an agent's identifiers name, in canonical form. */
export function hostsOf({ ipv4, ipv6, host }: AgentIdentifiers): ReadonlySet<string> {
  return new Set([...ipv4, ...ipv6, ...host].map(canonicalHost));
}
