/**
 * The source guard: packets of a link come in only with the sources of that link, in IPv4, IPv6, ARP and neighbour discovery (docs/spec/pod-network.md#5.7).
 *
 * Owns: the nftables tables `inet source-guard` and `arp source-guard`; the meaning of the annotations of exceptions. Does not know: who makes the links,
 * pods, Kubernetes.
 *
 * ```ts
 * const guard = new SourceGuard({ nft, elements }, { mode: "on" });
 * guard.sync([{ ifindex: 12, addresses: [IpAddress.parse("10.1.0.3")], extra: [] }]);
 * for (const { reason, ifindex, source } of guard.refusals()) log.warn("refused", { reason, ifindex, source });
 * ```
 */

export { GuardError } from "./errors.ts";
export { GUARD_ESTATE } from "./estate.ts";
export { ALLOWED_SOURCES, allowedSources, EXTRA_SOURCES } from "./extra-sources.ts";
export { guardTables, readRefusals, removeGuard, SourceGuard } from "./source-guard.ts";
export { GUARD_REASONS, type GuardedLink, type GuardMode, type GuardReason, type Refusal } from "./types.ts";
