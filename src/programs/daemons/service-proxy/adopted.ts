import type { Logger } from "#base/log";
import type { DataPlane } from "#features/service-proxy";
import { isKernelError } from "#kernel/errors";

/**
 * Returns true if each family has a complete table of an earlier run. Also false if the kernel does not tell: the caller looks again at the next
 * failure to reach the API server.
 */
export function areAdopted(planes: readonly Pick<DataPlane, "hasCompleteTable">[], log: Logger): boolean {
  try {
    return planes.every((plane) => plane.hasCompleteTable());
  } catch (error) {
    if (!isKernelError(error)) throw error;
    log.warn("cannot find out whether the tables of an earlier run are complete", { error: error.message });
    return false;
  }
}
