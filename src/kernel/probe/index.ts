/**
 * What this kernel has and lacks, found by trying.
 *
 * Owns: {@link probeKernel}. Refuses to know: how it is shown (`isthmus doctor`) and what a feature does about a lack.
 *
 * ```ts
 * for (const { name, available, affects } of probeKernel()) if (!available) console.log(name, affects.join(", "));
 * ```
 */
export { probeKernel } from "./probe.ts";
export type { KernelFeature } from "./types.ts";
