/**
 * The uplink proxy as a whole.
 *
 * Owns: listeners, threads, counters, draining. Does not know: where snapshots and settings come from.
 *
 * ```ts
 * const proxy = new UplinkProxy({ snapshots, evidence, log }, settings, { version });
 * await proxy.run({ signal });
 * ```
 */
export { HealthParts } from "./health-parts.ts";
export type { Page, StartThreads, Threads, ThreadsDeps, ThreadsOptions } from "./threads.ts";
export { type PodSecrets, UplinkProxy } from "./uplink-proxy.ts";
