/**
 * The kernel's network state, namespace by namespace: one stack of ports over one netlink socket.
 *
 * Owns: {@link Kernel}, {@link NetStack} and the real one, {@link openKernel}. Does not know: its use by features.
 * The fake that tests run on is `#kernel/fake`.
 *
 * ```ts
 * const kernel = openKernel();
 * using pod = kernel.openNetNs({ path: env.CNI_NETNS });
 * using stack = kernel.openStack(pod);
 * for (const link of stack.links.list()) log.info("link", { name: link.name });
 * ```
 */

export { isKernelError, type KernelErrorCode } from "#kernel/errors";
export type { LinkPort } from "#kernel/link";
export type { NetNs } from "#kernel/netns";
export type { SysctlPort } from "#kernel/sysctl";
export { openKernel } from "./kernel.ts";
export { openSameNetNs } from "./open-same.ts";
export { type Kernel, type NetStack, OF_OTHERS } from "./types.ts";
