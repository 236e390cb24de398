/**
 * The features that this kernel has and lacks, found by trying.
 *
 * Owns: {@link probeKernel}. Does not know: its output (`isthmus doctor`), and the reaction of features.
 *
 * ```ts
 * for (const { name, available, affects } of probeKernel()) if (!available) console.log(name, affects.join(", "));
 * ```
 */
export { probeKernel } from "./probe.ts";
export type { KernelFeature } from "./types.ts";
