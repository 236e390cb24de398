/**
 * Waiting, ordering and bounding. Everything that waits takes an `AbortSignal`; functions that run for each connection take an
 * {@link AbortSignalLike}.
 *
 * Owns: {@link sleep}, {@link Backoff}, {@link Dirty}, {@link KeyedMutex}, {@link Semaphore}, {@link TaskGroup},
 * {@link Deferred}, {@link LightAbortSignal}, {@link unlessAborted}. Refuses to know: Kubernetes, the kernel, the network.
 */
export { Backoff, type BackoffOptions } from "./backoff.ts";
export { Deferred } from "./deferred.ts";
export { Dirty } from "./dirty.ts";
export { type AbortLikeOptions, type AbortSignalLike, LightAbortSignal } from "./light-abort-signal.ts";
export { KeyedMutex, Semaphore } from "./mutex.ts";
export { type AbortOptions, sleep, withDeadline } from "./sleep.ts";
export { TaskGroup } from "./task-group.ts";
export { unlessAborted } from "./unless-aborted.ts";
