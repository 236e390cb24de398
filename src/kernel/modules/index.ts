/**
 * Kernel modules that no request of a program makes the kernel load by itself.
 *
 * Owns: the call of modprobe(8). Does not know: which modules a feature needs, nor whether the kernel then has what they bring: that is for a probe.
 *
 * ```ts
 * const refused = await loadModules(["fou", "fou6"], { signal });
 * if (refused !== undefined) log.debug("modprobe", { refused });
 * ```
 */
export { loadModules } from "./modprobe.ts";
