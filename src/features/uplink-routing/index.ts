/**
 * Per-uplink routing: tables, rules and firewall of the uplinks, and which uplinks work (docs/spec/uplink-proxy.md#3).
 *
 * Owns: `uplinkd` as a whole, the kernel's side of transparent mode, the control socket. Does not know: connections, and which code
 * chooses an uplink.
 *
 * ```ts
 * const uplinkd = new Uplinkd({ config, stack, nft, follow, health: health.part("uplinkd"), clock, log }, { controlSocket });
 * group.spawn((signal) => uplinkd.run({ signal }));
 * uplinkd.snapshots.current.uplinks;
 * ```
 */
export { otherTables, settingsOfClaims, uplinksEstate } from "./estate.ts";
export {
  ownMark,
  removeTransparent,
  runTransparentWatchdog,
  startWatchdog,
  TransparentKeeper,
  WATCHDOG_READY,
} from "./guard/index.ts";
export { describeFlush, flushKernel, STATUS_REPORT_PATH, Uplinkd } from "./uplinkd/index.ts";
