import { TaskGroup } from "#base/async";
import type { WorkQueue } from "./work-queue.ts";

/** Settings of {@link runWorkers}. */
export interface WorkersOptions {
  /** The number of keys that are processed concurrently. Default 1. */
  readonly workers?: number;
  /** Processes one key. An error ends all workers: to retry a key, catch its error and call `queue.retry`. */
  readonly process: (key: string, options: { readonly signal: AbortSignal }) => Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Takes keys from the queue and processes them until the signal aborts or the queue is shut down and empty. Then waits for
 * the calls of `process` that are running, and resolves. Rejects with what `process` throws, once the other workers have ended.
 */
export async function runWorkers(queue: WorkQueue, options: WorkersOptions): Promise<void> {
  const group = new TaskGroup(options.signal);
  for (let worker = 0; worker < (options.workers ?? 1); worker += 1) {
    group.spawn(async (signal) => {
      for (;;) {
        const key = await queue.take({ signal });
        if (key === undefined) return;
        try {
          await options.process(key, { signal });
        } finally {
          queue.done(key);
        }
      }
    });
  }
  await group.wait();
}
