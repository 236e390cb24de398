/**
 * Resolves names to addresses with each uplink's own servers (docs/spec/uplink-proxy.md#6.3).
 *
 * Owns: queries, /etc/hosts, search domains, caches, and the fallback to other servers. Does not know: which
 * addresses may be used, and what for.
 *
 * ```ts
 * const dns = new UplinkDns({ clock, settings: () => settings.dns });
 * const { addresses, via } = await dns.resolve("registry.example", uplink, { others, signal });
 * ```
 */
export { parseHosts } from "#base/names";
export { DnsError } from "./errors.ts";
export { type DnsRecord, type Query, queryServers } from "./query.ts";
export { type DnsAnswer, type DnsUplink, UplinkDns } from "./uplink-dns.ts";
