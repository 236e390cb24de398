import { fstatSync } from "node:fs";
import { describeError } from "#base/errors";
import { C, close, open, setns } from "#kernel/ffi";

/** Refuses functions that return a promise: after the first `await` they would run in the wrong namespace. */
export type SyncResult<T> = T extends PromiseLike<unknown> ? never : T;

/**
 * Runs `fn` with the calling thread inside `ns` and returns its result. Sockets made by `fn` stay in `ns`.
 * `fn` must not be asynchronous, and must not start processes or Workers: they would live in `ns`. If the thread cannot
 * return to its own namespace, the process ends, because all later results could be wrong. Throws the error of `fn`, and
 * {@link KernelError} when `ns` cannot be entered.
 */
export function inNetNs<T>(ns: { readonly fd: number }, fn: () => SyncResult<T>): T {
  // Even entering its own namespace needs CAP_SYS_ADMIN; a program that stays in its namespace should not need it.
  if (isHere(ns.fd)) return fn() as T;
  return onReturn(currentNetNsFd(), () => {
    setns(ns.fd, C.CLONE_NEWNET);
    return fn() as T;
  });
}

/** The number of calls of {@link onReturn} that this thread is in. */
let depth = 0;
/** The namespace in which this thread is outside of them. It cannot end while the thread is in it, so no other one has its number. */
let home: NetNsNumber | undefined;

interface NetNsNumber {
  readonly dev: number;
  readonly ino: number;
}

/** Returns true if the calling thread is in the namespace of a descriptor. Throws {@link KernelError}. */
function isHere(fd: number): boolean {
  if (depth > 0) return isSame(fstatSync(fd), numberOfCurrent());
  home ??= numberOfCurrent();
  return isSame(fstatSync(fd), home);
}

function numberOfCurrent(): NetNsNumber {
  const fd = currentNetNsFd();
  try {
    return fstatSync(fd);
  } finally {
    close(fd);
  }
}

function isSame(one: NetNsNumber, other: NetNsNumber): boolean {
  return one.ino === other.ino && one.dev === other.dev;
}

/** Runs `fn`, then brings the thread back to the namespace of `before` and closes `before`. */
export function onReturn<T>(before: number, fn: () => T): T {
  depth += 1;
  try {
    return fn();
  } finally {
    goBack(before);
    depth -= 1;
  }
}

function goBack(before: number): void {
  try {
    setns(before, C.CLONE_NEWNET);
  } catch (error) {
    // A thread that may not leave its namespace could not return either; it has not left.
    if (!isSame(fstatSync(before), numberOfCurrent())) {
      process.stderr.write(`fatal: cannot return to the process's own network namespace: ${describeError(error)}\n`);
      process.abort();
    }
  }
  close(before);
}

/** A new descriptor of the calling thread's namespace. `/proc/self/ns/net` would name the main thread's in a Worker. */
export function currentNetNsFd(): number {
  return open("/proc/thread-self/ns/net", C.O_RDONLY);
}
