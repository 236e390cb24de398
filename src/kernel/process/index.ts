/**
 * The kernel's treatment of this process.
 *
 * Owns: its end with its parent. Does not know: what the two do.
 *
 * ```ts
 * endWithParent();
 * ```
 */
import { KernelError } from "#kernel/errors";
import { killAtParentDeath } from "#kernel/ffi";

/**
 * From now on the kernel kills this process (SIGKILL) when its parent ends, also if it is stopped or in an endless loop. Returns false where
 * calls of the C library cannot be made. Call it in the main thread.
 */
export function endWithParent(): boolean {
  try {
    killAtParentDeath();
    return true;
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return false;
  }
}
