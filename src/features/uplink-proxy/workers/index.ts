/**
 * Further threads that accept at the same addresses, so that connecting uses several cores.
 *
 * Owns: the threads and the messages between them. Does not know: how a client is served. Nothing imports it but a program, which passes it in, so it
 * can be removed whole.
 *
 * ```ts
 * const proxy = new UplinkProxy({ ...deps, startThreads: startWorkers }, settings, { version });
 * ```
 */
import type { StartThreads } from "../proxy/index.ts";
import { WorkerPool } from "./pool.ts";

export { decode, encode } from "./codec.ts";

/** Starts worker threads of Node.js. */
export const startWorkers: StartThreads = (deps, options) => new WorkerPool(deps, options);
