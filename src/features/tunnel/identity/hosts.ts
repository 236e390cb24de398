import { IpAddress } from "#base/ip";
import type { AgentIdentifiers } from "#wire/konnectivity";

/** The form in which hosts are compared: canonical addresses, names in lower case without a trailing dot. */
export function canonicalHost(host: string): string {
  const bare = host.startsWith("[") && host.endsWith("]") ? host.slice(1, -1) : host;
  return IpAddress.tryParse(bare)?.toString() ?? bare.toLowerCase().replace(/\.$/, "");
}

/** The hosts that an agent's identifiers name, in canonical form. */
export function hostsOf({ ipv4, ipv6, host }: AgentIdentifiers): ReadonlySet<string> {
  return new Set([...ipv4, ...ipv6, ...host].map(canonicalHost));
}
