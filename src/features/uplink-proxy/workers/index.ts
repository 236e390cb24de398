/**
 * Further threads that accept at the same addresses, so that connecting uses several cores.
 *
 * Owns: the threads and the messages between them. Does not know: how a client is served.
 *
 * ```ts
 * const pool = new WorkerPool(deps, { threads: settings.workers - 1, settings, limiter: limiter.memory, mark, hostsPath });
 * pool.setSnapshot(snapshot);
 * await pool.close();
 * ```
 */
export { decode, encode } from "./codec.ts";
export type { Page } from "./messages.ts";
export { WorkerPool } from "./pool.ts";
