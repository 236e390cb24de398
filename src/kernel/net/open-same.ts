import { isKernelError } from "#kernel/errors";
import type { NetNs } from "#kernel/netns";
import type { Kernel } from "./types.ts";

/**
 * Opens a pod's network namespace; `undefined` if it is gone, or its path leads to another pod's by now. The caller disposes. Throws
 * `KernelError`.
 */
export function openSameNetNs(
  kernel: Kernel,
  { path, inode }: { readonly path: string; readonly inode: bigint },
): NetNs | undefined {
  let netns: NetNs;
  try {
    netns = kernel.openNetNs({ path });
  } catch (error) {
    if (!isKernelError(error, "not-found", "invalid")) throw error;
    return undefined;
  }
  if (netns.inode === inode) return netns;
  netns[Symbol.dispose]();
  return undefined;
}
