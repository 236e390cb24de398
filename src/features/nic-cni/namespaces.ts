import { isKernelError } from "#kernel/errors";
import type { Kernel, NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";

/** Opens a namespace; `undefined` if it does not exist. A pinned name that is not mounted yet is none either. */
export function openIfThere(kernel: Kernel, path: string): NetNs | undefined {
  try {
    return kernel.openNetNs({ path });
  } catch (error) {
    if (isKernelError(error, "not-found") || isKernelError(error, "invalid")) return undefined;
    throw error;
  }
}

/** The host's stack; features never switch the namespace. */
export function openHost(kernel: Kernel): NetStack {
  using own = kernel.openNetNs("own");
  return kernel.openStack(own);
}
