/**
 * Which uplinks work (docs/spec/uplink-proxy.md#3.3): judged by real traffic, by this host's own state, and by probes that cost money only
 * when they are needed.
 *
 * Owns: the failure flags, active probes and their pace. Does not know: how an uplink is chosen, and penalties of single
 * destinations.
 *
 * ```ts
 * const health = new UplinkHealth({ log, changed: () => dirty.mark("health") });
 * health.observe(settings, uplinks.map((uplink) => ({ uplink, fault: localFault(uplink, listing) })));
 * health.blackholed("lan0", "registry.example:443");
 * health.stateOf("lan0")?.status.lastError;
 * ```
 */
export { localFault } from "./local.ts";
export { openProber, type ProbeOutcome, type Prober } from "./prober.ts";
export { UplinkHealth, type UplinkHealthState } from "./uplink-health.ts";
