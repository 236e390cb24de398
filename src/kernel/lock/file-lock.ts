import { fstatSync, statSync } from "node:fs";
import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { C, close, open, tryLock } from "#kernel/ffi";

/** The pause between tries to get a taken lock, in milliseconds. */
const RETRY_MS = 50;
/** The time between two checks of the lock's file, in milliseconds. A check takes some 10 µs. */
const CHECK_MS = 500;

/** Another process holds a new file of the lock's name. */
export class FileLockError extends ExpectedError<"taken"> {
  override readonly name = "FileLockError";
}

/** A lock that this process holds until disposed. */
export class FileLock implements AsyncDisposable {
  readonly #path: string;
  #fd: number;

  constructor(path: string, fd: number) {
    this.#path = path;
    this.#fd = fd;
  }

  /**
   * Keeps the lock until the signal aborts. A file that was removed or replaced excludes nobody: it is made again within a second, and locked.
   * `degraded` while that is not possible, as without its folder. Rejects with {@link FileLockError} if another process has locked a new file
   * first: the caller must end, because two processes do its work.
   */
  async keep(
    { health, log, clock }: { readonly health: HealthPart; readonly log: Logger; readonly clock: Clock },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    health.ok(this.#path);
    const check = async (): Promise<void> => {
      if (isFileOf(this.#path, this.#fd)) return;
      this.#lockAgain();
      log.warn("locked again: the lock file was removed or replaced", { file: this.#path });
      health.ok(this.#path);
    };
    const onFailure = (error: ExpectedError): void => {
      if (error instanceof FileLockError) throw error;
      health.degraded(error);
    };
    await repeat(check, { signal, clock, everyMs: CHECK_MS, onFailure });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    close(this.#fd);
  }

  #lockAgain(): void {
    const fd = openFile(this.#path);
    if (!tryLock(fd)) {
      close(fd);
      const text = `lost the lock ${this.#path}: the file was removed or replaced, and another process has locked the new one; leave this file alone`;
      throw new FileLockError("taken", text);
    }
    close(this.#fd);
    this.#fd = fd;
  }
}

/**
 * Takes the lock if it is free; `undefined` if it is taken. Throws `KernelError` if the file cannot be opened.
 */
export function tryFileLock(path: string): Disposable | undefined {
  const fd = openFile(path);
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
): Promise<FileLock> {
  let fd = openFile(path);
  let hasWaited = false;
  try {
    // A file that was removed or replaced meanwhile is no lock.
    while (!(tryLock(fd) && isFileOf(path, fd))) {
      if (!isFileOf(path, fd)) {
        const next = openFile(path);
        close(fd);
        fd = next;
        continue;
      }
      if (!hasWaited) options.onWait?.();
      hasWaited = true;
      await sleep(RETRY_MS, options);
    }
  } catch (error) {
    close(fd);
    throw error;
  }
  return new FileLock(path, fd);
}

function openFile(path: string): number {
  return open(path, C.O_RDWR | C.O_CREAT);
}

/** True if the path names the open file. A path that cannot be looked at names none. */
function isFileOf(path: string, fd: number): boolean {
  const own = fstatSync(fd, { bigint: true });
  try {
    const found = statSync(path, { bigint: true, throwIfNoEntry: false });
    return found !== undefined && found.dev === own.dev && found.ino === own.ino;
  } catch {
    return false;
  }
}
