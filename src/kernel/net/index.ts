/**
 * The kernel's network state, namespace by namespace: one stack of ports over one netlink socket.
 *
 * Owns: {@link Kernel}, {@link NetStack} and the real one, {@link openKernel}. Refuses to know: what features do with it.
 * The fake that tests run on is `#kernel/fake`.
 *
 * ```ts
 * const kernel = openKernel();
 * using pod = kernel.openNetNs({ path: env.CNI_NETNS });
 * using stack = kernel.openStack(pod);
 * for (const link of stack.links.list()) log.info("link", { name: link.name });
 * ```
 */

export type { Address, AddressPort, AddressSpec } from "#kernel/address";
export { isKernelError, KernelError, type KernelErrorCode } from "#kernel/errors";
export type { FouPort, FouPortEntry } from "#kernel/fou";
export type { Link, LinkChange, LinkPort, LinkRef, LinkSpec, NetnsIdPort } from "#kernel/link";
export type { Neighbour, NeighbourPort, NeighbourSpec } from "#kernel/neighbour";
export type { NetNs, NetNsRef } from "#kernel/netns";
export type { NextHop, Route, RouteEncap, RouteFilter, RouteKey, RoutePort, RouteSpec } from "#kernel/route";
export type { Rule, RulePort, RuleSpec } from "#kernel/rule";
export type { SysctlPort } from "#kernel/sysctl";
export { openKernel } from "./kernel.ts";
export type { Kernel, NetStack } from "./types.ts";
