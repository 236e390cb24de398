/**
 * Helpers that wait, keep an order and limit concurrency. Every function that waits takes an `AbortSignal`;
 * functions that run for each connection take an {@link AbortSignalLike}.
 *
 * Owns: {@link sleep}, {@link pause}, {@link retry}, {@link Backoff}, {@link Dirty}, {@link KeyedMutex}, {@link Semaphore}, {@link TaskGroup},
 * {@link Deferred}, {@link LightAbortSignal}, {@link TimeSlice}, {@link unlessAborted}, {@link untilAborted}. Does not know: Kubernetes, the kernel, the network.
 */

export { unlessAborted, untilAborted } from "./aborted.ts";
export { Backoff } from "./backoff.ts";
export { Deferred } from "./deferred.ts";
export { Dirty, type Marks } from "./dirty.ts";
export { type AbortLikeOptions, type AbortSignalLike, LightAbortSignal } from "./light-abort-signal.ts";
export { KeyedMutex, Semaphore } from "./mutex.ts";
export { poll } from "./poll.ts";
export { type RetryOptions, retry } from "./retry.ts";
export { type AbortOptions, pause, sleep, withDeadline } from "./sleep.ts";
export { TaskGroup } from "./task-group.ts";
export { TimeSlice } from "./time-slice.ts";
