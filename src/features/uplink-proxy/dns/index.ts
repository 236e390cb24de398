/**
 * Names to addresses, by each uplink's own servers (docs/spec/uplink-proxy.md#6.3).
 *
 * Owns: asking, /etc/hosts, search domains, what is remembered and for how long, whom to ask when nobody answers. Refuses to know: which
 * addresses may be used, and what for.
 *
 * ```ts
 * const dns = new UplinkDns({ clock, settings: () => settings.dns });
 * const { addresses, via } = await dns.resolve("registry.example", uplink, { others, signal });
 * ```
 */
export { parseHosts } from "#base/names";
export { DnsError, type DnsErrorCode } from "./errors.ts";
export { type DnsRecord, type Query, type QueryPath, queryServers } from "./query.ts";
export { type DnsAnswer, type DnsUplink, UplinkDns, type UplinkDnsDeps } from "./uplink-dns.ts";
