/**
 * Names to addresses, as the system's resolver has it and without its threads: hosts(5), resolv.conf(5) with its search list, DNS.
 *
 * Owns: both files, which server is asked when, the order of addresses. Refuses to know: what the addresses are for, nsswitch.conf,
 * multicast DNS, and what was said a moment ago.
 *
 * ```ts
 * const names = new SystemNames({ clock: systemClock });
 * const [address] = await names.resolve("kubernetes.default.svc", { signal });
 * ```
 */
export { NamesError } from "./errors.ts";
export { HostsFile, parseHosts } from "./hosts.ts";
export { nodeLookup } from "./node-lookup.ts";
export { candidatesOf, parseResolvConf } from "./resolv-conf.ts";
export { type Names, SystemNames } from "./system-names.ts";
