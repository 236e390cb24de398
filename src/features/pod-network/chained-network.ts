import { isKernelError } from "#kernel/errors";
import { type Kernel, type NetStack, OF_OTHERS } from "#kernel/net";
import { type NetNs, sameNetNs } from "#kernel/netns";
import type { CniResult } from "#wire/cni";
import { type AdoptedPod, adoptedLinks, findPluginLink, isAdoptedBy, markAdopted } from "./adopted.ts";
import { checkAdopted } from "./check.ts";
import { PodNetworkError } from "./errors.ts";
import { PodNamespaces, type PodPlace } from "./pod-namespaces.ts";

/** A pod's interface that another plugin made. */
export interface ChainedRequest {
  /** The path of the pod's namespace. */
  readonly netns: string;
  readonly ifname: string;
  readonly podUid: string;
}

/**
 * The pods of a node whose interfaces another plugin makes (docs/spec/pod-network.md#5.3). The alias of the host's end is the only record;
 * it is deleted with the link. Nothing else of the node is changed.
 */
export class ChainedNetwork implements Disposable {
  readonly #kernel: Kernel;
  readonly #own: NetNs;
  readonly #host: NetStack;

  /** Opens the namespace that this process runs in. Throws `KernelError`. */
  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#own = kernel.openNetNs("own");
    this.#host = kernel.openStack(this.#own);
  }

  [Symbol.dispose](): void {
    this.#host[Symbol.dispose]();
    this.#own[Symbol.dispose]();
  }

  /** Marks the host's end of the pod's interface. Idempotent. Throws {@link PodNetworkError} and `KernelError`. */
  adopt({ netns: path, ifname, podUid: uid }: ChainedRequest): void {
    using netns = openPodNetNs(this.#kernel, path, this.#own);
    using pod = this.#kernel.openStack(netns);
    const { link } = findPluginLink({ host: this.#host, pod, netns }, ifname);
    markAdopted(this.#host, link, { uid, ifname });
  }

  /** The UID of the pod that the interface is marked for; `undefined` if it has no mark. Throws {@link PodNetworkError} and `KernelError`. */
  ownerOf({ netns: path, ifname }: Omit<ChainedRequest, "podUid">): string | undefined {
    using netns = openPodNetNs(this.#kernel, path, this.#own);
    using pod = this.#kernel.openStack(netns);
    const { link } = findPluginLink({ host: this.#host, pod, netns }, ifname);
    return adoptedLinks([link]).find((one) => one.ifname === ifname)?.podUid;
  }

  /** Throws {@link PodNetworkError}, `check-failed` if a part of our set-up or of `expected` is missing. */
  check({ netns: path, ifname, podUid: uid }: ChainedRequest, expected: CniResult | undefined): void {
    using netns = openPodNetNs(this.#kernel, path, this.#own);
    using pod = this.#kernel.openStack(netns, OF_OTHERS);
    const { link, podLink } = findPluginLink({ host: this.#host, pod, netns }, ifname);
    if (!isAdoptedBy(link, { uid, ifname })) {
      const what = `alias of pod UID ${uid}, interface ${ifname}, on host link ${link.name}`;
      throw new PodNetworkError("check-failed", `CHECK: ${what} is missing`);
    }
    checkAdopted({ pod, link, podLink, expected });
  }

  /** The marked interfaces; with `podUid` those of one pod, the most recent first. */
  list({ podUid }: { readonly podUid?: string } = {}): AdoptedPod[] {
    const all = adoptedLinks(this.#host.links.list());
    return podUid === undefined ? all : all.filter((one) => one.podUid === podUid);
  }

  /** The marked interfaces with their namespaces, the most recent first. Looks through all namespaces of the machine. */
  places(): PodPlace[] {
    const links = this.#host.links.list();
    const byIndex = new Map(links.map((link) => [link.index, link] as const));
    const namespaces = new PodNamespaces(this.#kernel, this.#host);
    return adoptedLinks(links).flatMap(({ podUid, ifname, ifindex }) => {
      const link = byIndex.get(ifindex);
      const place = link === undefined ? undefined : namespaces.placeOf(link);
      return place === undefined ? [] : [{ ...place, ifname, podUid, addresses: [] }];
    });
  }
}

/** Opens the namespace of a pod. Throws {@link PodNetworkError} if the path has no namespace, or it is the node's own namespace. */
export function openPodNetNs(kernel: Kernel, path: string, own: NetNs): NetNs {
  let netns: NetNs;
  try {
    netns = kernel.openNetNs({ path });
  } catch (error) {
    if (!isKernelError(error, "not-found", "invalid")) throw error;
    throw new PodNetworkError("netns-not-found", `${path} is not, or no longer, a network namespace`, { cause: error });
  }
  if (!sameNetNs(netns, own)) return netns;
  netns[Symbol.dispose]();
  throw new PodNetworkError("own-netns", `${path} is the network namespace of the node itself, not of a pod`);
}
