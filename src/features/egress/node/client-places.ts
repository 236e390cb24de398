import type { Clock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { type Kernel, type NetNs, openSameNetNs } from "#kernel/net";
import { holderOf } from "../client/index.ts";
import type { ClientPod } from "./client-pods.ts";

/** A network namespace of a pod of this node, and the pod's interface there, as the kernel has them. */
export interface KernelPlace {
  /** A path by which the namespace can be opened. */
  readonly path: string;
  /** Distinguishes the namespace from a later one with the same path. */
  readonly inode: bigint;
  readonly ifname: string;
  /** The addresses that the pod was given. Empty behind another plugin, which knows them. */
  readonly addresses: readonly IpAddress[];
  /** The pod, if the kernel knows it: behind another plugin. */
  readonly podUid: string | undefined;
}

/** The network namespace of a client, and its interface there. */
export interface ClientPlace {
  readonly path: string;
  readonly inode: bigint;
  readonly ifname: string;
  readonly addresses: Readonly<Partial<Record<IpFamily, IpAddress>>>;
}

/** A listing of the kernel is used again for this time, milliseconds: it looks through all namespaces of the machine. */
const LISTING_MS = 500;

/**
 * The namespaces of the pods of this node: as an ADD told, else as the kernel tells. Holds one entry for each pod that had an ADD since the start
 * of this process, until {@link ClientPlaces.forget}.
 */
export class ClientPlaces {
  readonly #kernel: Kernel;
  readonly #clock: Clock;
  readonly #list: () => readonly KernelPlace[];
  readonly #podsAt: (address: string) => readonly ClientPod[];
  /** The places of ADDs, by the UID of the pod. */
  readonly #told = new Map<string, ClientPlace>();
  #listing: { readonly atMs: number; readonly places: readonly KernelPlace[] } | undefined;

  constructor(parts: {
    readonly kernel: Kernel;
    /** The kernel's places; one without a pod's UID has addresses. */
    readonly list: () => readonly KernelPlace[];
    /** The pods of this node whose status has an address. */
    readonly podsAt: (address: string) => readonly ClientPod[];
    readonly clock: Clock;
  }) {
    this.#kernel = parts.kernel;
    this.#list = parts.list;
    this.#podsAt = parts.podsAt;
    this.#clock = parts.clock;
  }

  /**
   * Remembers the place of an ADD. A further interface of the same namespace changes nothing: the first one carries the tunnels. Throws `KernelError`
   * if there is no namespace at this path.
   */
  tell(uid: string, at: Omit<ClientPlace, "inode">): ClientPlace {
    using netns = this.#kernel.openNetNs({ path: at.path });
    const first = this.#told.get(uid);
    if (first !== undefined && first.inode === netns.inode && first.ifname !== at.ifname) return first;
    const place = { ...at, inode: netns.inode };
    this.#told.set(uid, place);
    return place;
  }

  forget(uid: string): void {
    this.#told.delete(uid);
  }

  /** The next look at the kernel is a new one. */
  refresh(): void {
    this.#listing = undefined;
  }

  /** The place of a pod; `undefined` if its namespace is gone, is another pod's now, or cannot be found, or if its addresses are not known. */
  of(pod: ClientPod): ClientPlace | undefined {
    const { uid } = pod.metadata;
    const told = this.#told.get(uid);
    if (told !== undefined) {
      using netns = this.open(told);
      if (netns !== undefined) return told;
      this.#told.delete(uid);
    }
    const found = this.#places().find((place) => this.#isOf(place, pod));
    if (found === undefined) return undefined;
    // The node's routes may lack those of a family: another program has flushed them, and they are restored a moment later.
    const own = [...found.addresses, ...pod.addresses];
    // The kubelet has not told them yet. Without addresses the pod would lose its tunnels.
    if (own.length === 0) return undefined;
    const ofFamily = (family: IpFamily): Partial<Record<IpFamily, IpAddress>> => {
      const address = own.find((one) => one.family === family);
      return address === undefined ? {} : { [family]: address };
    };
    const { path, inode, ifname } = found;
    return { path, inode, ifname, addresses: { ...ofFamily(4), ...ofFamily(6) } };
  }

  /** Opens a namespace; `undefined` if it is gone, or the path leads to another one. The caller disposes it. Throws `KernelError`. */
  open(place: Pick<ClientPlace, "path" | "inode">): NetNs | undefined {
    return openSameNetNs(this.#kernel, place);
  }

  #places(): readonly KernelPlace[] {
    const now = this.#clock.monotonic();
    if (this.#listing === undefined || now - this.#listing.atMs > LISTING_MS)
      this.#listing = { atMs: now, places: this.#list() };
    return this.#listing.places;
  }

  #isOf(place: KernelPlace, { metadata: { uid } }: ClientPod): boolean {
    if (place.podUid !== undefined) return place.podUid === uid;
    for (const [other, { inode }] of this.#told) if (inode === place.inode) return other === uid;
    return place.addresses.some((address) => holderOf(this.#podsAt(String(address)))?.metadata.uid === uid);
  }
}
