/**
 * The kernel's side of the uplink proxy, composed.
 *
 * Owns: when the kernel is read and programmed. Does not know: connections.
 *
 * ```ts
 * const uplinkd = new Uplinkd({ config, stack, nft, follow, health: health.part("uplinkd"), log }, { controlSocket });
 * group.spawn((signal) => uplinkd.run({ signal }));
 * uplinkd.snapshots.current.uplinks;
 * ```
 */
export { describeFlush, flushKernel } from "./kernel.ts";
export { STATUS_REPORT_PATH } from "./status-report.ts";
export { Uplinkd } from "./uplinkd.ts";
