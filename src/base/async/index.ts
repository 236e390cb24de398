/**
 * Waiting, ordering and bounding. Everything that waits takes an `AbortSignal`; what is called for each connection, a {@link StopSignal}.
 *
 * Owns: {@link sleep}, {@link Backoff}, {@link Dirty}, {@link KeyedMutex}, {@link Semaphore}, {@link TaskGroup},
 * {@link Deferred}, {@link Stop}, {@link unlessAborted}. Refuses to know: Kubernetes, the kernel, the network.
 */
export { Backoff, type BackoffOptions } from "./backoff.ts";
export { Deferred } from "./deferred.ts";
export { Dirty } from "./dirty.ts";
export { KeyedMutex, Semaphore } from "./mutex.ts";
export { type AbortOptions, sleep, withDeadline } from "./sleep.ts";
export { Stop, type StopOptions, type StopSignal } from "./stop.ts";
export { TaskGroup } from "./task-group.ts";
export { unlessAborted } from "./unless-aborted.ts";
