/**
 * Which uplinks work (docs/spec/uplink-proxy.md#3.3): by what real traffic shows, by this host's own state, and by probes that spend no
 * money without need.
 *
 * Owns: the failure flags, active probes and their pace. Refuses to know: who chooses an uplink, and penalties of single
 * destinations.
 *
 * ```ts
 * const reach = new Reach({ log, changed: () => dirty.mark() });
 * reach.observe(settings, uplinks.map((uplink) => ({ uplink, fault: localFault(uplink, listing) })));
 * reach.blackholed("lan0", "registry.example:443");
 * reach.stateOf("lan0")?.status.lastError;
 * ```
 */
export { type ProbeMode, probeMode } from "./eligibility.ts";
export { localFault } from "./local.ts";
export { openProber, type ProbeOutcome, type Prober } from "./prober.ts";
export { type ObservedUplink, Reach, type ReachDeps, type ReachState } from "./reach.ts";
