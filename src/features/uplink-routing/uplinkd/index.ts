/**
 * The kernel's side of the uplink proxy, composed.
 *
 * Owns: when the kernel is read and programmed. Refuses to know: connections.
 *
 * ```ts
 * const uplinkd = new Uplinkd({ config, stack, nft, follow, health: health.part("uplinkd"), log }, { controlSocket });
 * group.spawn((signal) => uplinkd.run({ signal }));
 * uplinkd.snapshots.current.uplinks;
 * ```
 */
export { UplinkdError, type UplinkdErrorCode } from "./errors.ts";
export { flushKernel, type KernelDeps } from "./kernel.ts";
export { STATUS_REPORT_PATH } from "./status-report.ts";
export { Uplinkd, type UplinkdDeps, type UplinkdOptions } from "./uplinkd.ts";
