/**
 * Processes that share the work of one program, so that it uses several processors: a leader, which the caller has started, and workers, which
 * run the same command line.
 *
 * Owns: starting workers, orders to them, questions to them, the end of all when one ends. Does not know: how the work is shared.
 *
 * ```ts
 * const worker = thisWorker();
 * if (worker !== undefined) return serve(worker);
 * await using workers = await WorkerGroup.start({ command, count: 4, descriptors: [fd], signal });
 * await workers.watch({ signal });
 * ```
 */
export { WorkerError } from "./errors.ts";
export { thisWorker, type Worker } from "./this-worker.ts";
export { WorkerGroup } from "./worker-group.ts";
