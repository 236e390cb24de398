import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { IpAddress, MacAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import { type Kernel, type NetStack, OF_OTHERS } from "#kernel/net";
import { NETNS_DIR, type NetNs, type NetNsRef } from "#kernel/netns";

/** A pod's interface, and the namespace that it is in. */
export interface PodPlace {
  /** A path by which the namespace can be opened: of a pinned namespace, else of a process in it, which may end. */
  readonly path: string;
  /** Distinguishes the namespace from a later one with the same path. */
  readonly inode: bigint;
  readonly ifname: string;
  /** The addresses that the pod was given. Empty behind another plugin, which knows them. */
  readonly addresses: readonly IpAddress[];
  /** The pod, if the kernel tells it: behind another plugin. */
  readonly podUid: string | undefined;
  /** The container of the attachment, for a link that `coild` made. Absent behind another plugin. */
  readonly containerId?: string | undefined;
}

/** The maximum number of addresses on a pod's interface. Pods with more are not read: a process with CAP_NET_ADMIN may have added them. */
const MAX_ADDRESSES = 64;

/**
 * The namespaces that host links lead to, found by the ids that the host has for them: first among the pinned namespaces, then among the
 * namespaces of processes. An object is used for one survey.
 */
export class PodNamespaces {
  readonly #kernel: Kernel;
  readonly #host: NetStack;
  readonly #found = new Map<number, NetNsRef>();
  readonly #left: Iterator<NetNsRef>;

  constructor(kernel: Kernel, host: NetStack) {
    this.#kernel = kernel;
    this.#host = host;
    this.#left = candidates(kernel);
  }

  /** The addresses of the other end of a host's link. `undefined`: its namespace cannot be found or read. */
  addressesOf(link: Link): IpAddress[] | undefined {
    if (link.peerIndex === undefined || link.peerNetNsId === undefined) return undefined;
    const ref = this.#refOf(link.peerNetNsId);
    using netns = ref === undefined ? undefined : this.#tryOpen(ref);
    if (netns === undefined) return undefined;
    using pod = this.#kernel.openStack(netns, OF_OTHERS);
    const addresses = pod.addresses
      .list({ linkIndex: link.peerIndex })
      .filter(({ address, prefixLength, scope }) => prefixLength === address.bits && scope === "global")
      .map(({ address }) => address);
    return addresses.length > MAX_ADDRESSES ? undefined : addresses;
  }

  /** The pinned namespace that a host's link leads to, and the MAC address of its end there; `undefined` if only processes hold it. */
  endOf(
    link: Link,
  ): { readonly path: string; readonly inode: bigint; readonly mac: MacAddress | undefined } | undefined {
    const ref = link.peerNetNsId === undefined ? undefined : this.#refOf(link.peerNetNsId);
    if (ref === undefined || ref === "own" || !("name" in ref)) return undefined;
    using netns = this.#tryOpen(ref);
    if (netns === undefined) return undefined;
    using pod = this.#kernel.openStack(netns, OF_OTHERS);
    const mac = link.peerIndex === undefined ? undefined : pod.links.get({ index: link.peerIndex })?.mac;
    return { path: join(NETNS_DIR, ref.name), inode: netns.inode, mac };
  }

  /** The namespace that a host's link leads to, by a path that this process can open; `undefined` if it cannot be found. */
  placeOf(link: Link): Pick<PodPlace, "path" | "inode"> | undefined {
    const ref = link.peerNetNsId === undefined ? undefined : this.#refOf(link.peerNetNsId);
    if (ref === undefined || ref === "own" || "path" in ref) return undefined;
    using netns = this.#tryOpen(ref);
    if (netns === undefined) return undefined;
    const path = "name" in ref ? join(NETNS_DIR, ref.name) : `/proc/${ref.pid}/ns/net`;
    return { path, inode: netns.inode };
  }

  #refOf(id: number): NetNsRef | undefined {
    while (!this.#found.has(id)) {
      const next = this.#left.next();
      if (next.done === true) break;
      using netns = this.#tryOpen(next.value);
      const at = netns === undefined ? undefined : this.#host.netnsIds.get(netns);
      if (at !== undefined && !this.#found.has(at)) this.#found.set(at, next.value);
    }
    return this.#found.get(id);
  }

  /** Namespaces and processes can end while they are read, and some may not be read. */
  #tryOpen(ref: NetNsRef): NetNs | undefined {
    try {
      return this.#kernel.openNetNs(ref);
    } catch (error) {
      if (isKernelError(error)) return undefined;
      throw error;
    }
  }
}

function* candidates(kernel: Kernel): Generator<NetNsRef> {
  for (const name of kernel.listNetNs()) yield { name };
  for (const name of readdirSync("/proc")) if (/^[1-9]\d*$/.test(name)) yield { pid: Number(name) };
}
