/**
 * The kernel's part of the proxy besides routing: closed ports on uplinks, the pods' anchor address, and the redirection of
 * transparent mode (docs/spec/uplink-proxy.md#4, #12, #14).
 *
 * Owns: the nft tables `inet uplink_guard` and `inet uplink_proxy`, the mark's rule and table, addresses with our protocol. Does not know:
 * which code listens.
 *
 * ```ts
 * syncPortGuard(nft, wantedGuard(settings));
 * const keeper = new TransparentKeeper({ stack, nft, settings, healthy, startWatchdog, health }, { offSwitch });
 * group.spawn((signal) => keeper.run({ signal }));
 * ```
 */
export { Anchors, flushAnchors } from "./anchor.ts";
export { TransparentKeeper } from "./keeper.ts";
export { clearPortGuard, GUARD_TABLE, syncPortGuard, wantedGuard } from "./port-guard.ts";
export { hasTransparent, hasTransparentRouting, installTransparent, removeTransparent } from "./transparent.ts";
export { ownMark, planTransparent, TRANSPARENT_TABLE, transparentMarks } from "./transparent-plan.ts";
export { runTransparentWatchdog } from "./watchdog.ts";
export { startWatchdog, WATCHDOG_READY } from "./watchdog-process.ts";
