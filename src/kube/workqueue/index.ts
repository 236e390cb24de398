/**
 * Queues of keys to work on, modelled on client-go's workqueue.
 *
 * Owns: deduplication, one worker for a key at a time, retries with back-off, rate limits. Does not know: what the keys name.
 *
 * ```ts
 * const queue = new WorkQueue({ clock });
 * pods.addHandler({ onAdd: (pod) => queue.add(objectKey(pod)) });
 * await runWorkers(queue, {
 *   workers: 4,
 *   signal,
 *   process: async (key) => ((await sync(key)) ? queue.forget(key) : void queue.retry(key)),
 * });
 * ```
 */
export { RetryLimiter, type RetryOptions } from "./rate-limiter.ts";
export { WorkQueue } from "./work-queue.ts";
export { runWorkers } from "./workers.ts";
