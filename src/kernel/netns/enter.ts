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
  const home = currentNetNsFd();
  let isHome: boolean;
  try {
    isHome = isSame(ns.fd, home);
  } catch (error) {
    close(home);
    throw error;
  }
  if (isHome) {
    // Even entering its own namespace needs CAP_SYS_ADMIN; a program that stays in its namespace should not need it.
    close(home);
    return fn() as T;
  }
  return onReturn(home, () => {
    setns(ns.fd, C.CLONE_NEWNET);
    return fn() as T;
  });
}

function isSame(a: number, b: number): boolean {
  const [one, other] = [fstatSync(a), fstatSync(b)];
  return one.ino === other.ino && one.dev === other.dev;
}

/** Runs `fn`, then brings the thread back to the namespace of `home` and closes `home`. */
export function onReturn<T>(home: number, fn: () => T): T {
  try {
    return fn();
  } finally {
    goBack(home);
  }
}

function goBack(home: number): void {
  try {
    setns(home, C.CLONE_NEWNET);
  } catch (error) {
    // A thread that may not leave its namespace could not return either; it has not left.
    if (!isAtHome(home)) {
      process.stderr.write(`fatal: cannot return to the process's own network namespace: ${describeError(error)}\n`);
      process.abort();
    }
  }
  close(home);
}

function isAtHome(home: number): boolean {
  const here = currentNetNsFd();
  try {
    return isSame(here, home);
  } finally {
    close(here);
  }
}

/** A new descriptor of the calling thread's namespace. `/proc/self/ns/net` would name the main thread's in a Worker. */
export function currentNetNsFd(): number {
  return open("/proc/thread-self/ns/net", C.O_RDONLY);
}
