/**
 * A lock file, which one process at a time can hold. The kernel releases the lock when the process ends in any way (flock(2)).
 *
 * ```ts
 * await using _lock = await acquireFileLock("/run/coild.lock", { signal });
 * ```
 */
import { type AbortOptions, sleep } from "#base/async";
import { C, close, open, tryLock } from "#kernel/ffi";

/** The pause between tries to get a taken lock, in milliseconds. */
const RETRY_MS = 50;

/**
 * Takes the lock if it is free; `undefined` if it is taken. Throws `KernelError` if the file cannot be opened.
 */
export function tryFileLock(path: string): Disposable | undefined {
  const fd = open(path, C.O_RDWR | C.O_CREAT);
  if (tryLock(fd)) return { [Symbol.dispose]: () => close(fd) };
  close(fd);
  return undefined;
}

/**
 * Waits until this process has the lock; disposing releases it. The file stays: if it were removed, two processes could lock two files of
 * the same name. Throws `KernelError` when the file cannot be opened, or the signal's reason.
 */
export async function acquireFileLock(
  path: string,
  options: AbortOptions & { /** Called once, if another process has the lock. */ readonly onWait?: () => void } = {},
): Promise<AsyncDisposable> {
  const fd = open(path, C.O_RDWR | C.O_CREAT);
  try {
    for (let tries = 0; !tryLock(fd); tries += 1) {
      if (tries === 0) options.onWait?.();
      await sleep(RETRY_MS, options);
    }
  } catch (error) {
    close(fd);
    throw error;
  }
  return {
    [Symbol.asyncDispose]: async () => close(fd),
  };
}
