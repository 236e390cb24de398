/**
 * A lock file, which one process at a time can hold. The kernel releases the lock when the process ends in any way (flock(2)).
 *
 * ```ts
 * await using lock = await acquireFileLock("/run/coild.lock", { signal });
 * group.spawn((at) => lock.keep({ health, log, clock }, { signal: at }));
 * ```
 */
export { acquireFileLock, FileLock, tryFileLock } from "./file-lock.ts";
