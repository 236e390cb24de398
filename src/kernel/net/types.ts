import type { AddressPort } from "#kernel/address";
import type { OffloadPort } from "#kernel/ethtool";
import type { FouPort } from "#kernel/fou";
import type { LinkPort, NetnsIdPort } from "#kernel/link";
import type { NeighbourPort } from "#kernel/neighbour";
import type { NetNs, NetNsRef } from "#kernel/netns";
import type { RoutePort } from "#kernel/route";
import type { RulePort } from "#kernel/rule";
import type { SysctlPort } from "#kernel/sysctl";

/** All ports of one namespace. The opener disposes it; the namespace's own handle may be closed before. */
export interface NetStack extends Disposable {
  readonly links: LinkPort;
  readonly addresses: AddressPort;
  readonly neighbours: NeighbourPort;
  readonly routes: RoutePort;
  readonly rules: RulePort;
  readonly fou: FouPort;
  readonly sysctl: SysctlPort;
  readonly offloads: OffloadPort;
  readonly netnsIds: NetnsIdPort;
}

/** The settings for reading a namespace. */
export interface StackOptions {
  /** Lists of more objects throw {@link KernelError} `failed`. Default: no bound. The fake has none. */
  readonly maxListed?: number;
}

/**
 * For namespaces in which others may have `CAP_NET_ADMIN`: a list takes some 8 µs and 600 bytes for each object, and blocks the thread. Pods that route for
 * a whole network may have more; what cannot be read of them is named.
 */
export const OF_OTHERS: StackOptions = { maxListed: 32_768 };

/** The kernel, or a fake of it. Every method throws {@link KernelError}. */
export interface Kernel {
  /** Opens the ports of a namespace, which takes some 70 µs. The caller disposes the stack. Options: {@link StackOptions}. */
  openStack(netns: NetNs, options?: StackOptions): NetStack;
  /** Throws `not-found` when there is no such namespace. The caller disposes the handle. */
  openNetNs(ref: NetNsRef): NetNs;
  /** Makes and pins a namespace as `ip netns add` does. Throws `already-exists`. The caller disposes the handle. */
  createNetNs(name: string): NetNs;
  /** Makes a namespace without a name, which ends with its last handle, even after a crash. The caller disposes the handle. */
  createAnonymousNetNs(): NetNs;
  /** Throws `not-found`. */
  deleteNetNs(name: string): void;
  /** Pinned namespaces, by name. */
  listNetNs(): string[];
}
