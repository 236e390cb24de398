/**
 * Resolves names to addresses by the rules of the system's resolver but without its threads: hosts(5), resolv.conf(5) with its search
 * list, DNS.
 *
 * Owns: both files, the order of servers and of addresses. Does not know: the use of addresses, nsswitch.conf,
 * multicast DNS, caching.
 *
 * ```ts
 * const names = new SystemNames({ clock: systemClock });
 * const [address] = await names.resolve("kubernetes.default.svc", { signal });
 * ```
 */
export { NamesError } from "./errors.ts";
export { HostsFile, parseHosts } from "./hosts.ts";
export { nodeLookup } from "./node-lookup.ts";
export { type Names, SystemNames } from "./system-names.ts";
