import type { AbortOptions } from "#base/async";
import type { Cidr, IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { MonitorEvent } from "#kernel/monitor";
import { type Kernel, type NetStack, openSameNetNs } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { CniResult } from "#wire/cni";
import { parseAlias } from "./alias.ts";
import { announceOwn } from "./apply.ts";
import { Attacher, type CheckRequest, type SetUpRequest } from "./attacher.ts";
import { AttachmentLinks } from "./attachment-links.ts";
import { type CutOffResult, cutOffLost } from "./cut-off-lost.ts";
import { LinkDeletions } from "./deletions.ts";
import { PodNetworkError } from "./errors.ts";
import { HostSetUp } from "./host-set-up.ts";
import { carriesIpv6 } from "./ipv6-mtu.ts";
import { type KnownLink, KnownLinks } from "./known-links.ts";
import { isOfNetwork } from "./link-groups.ts";
import { type LinkGuard, planGuard } from "./link-guard.ts";
import { LinkMemory, type Remade } from "./link-memory.ts";
import { type AttachedPod, halfMadeLinks, isOurMake, joinAttachments } from "./listing.ts";
import type { Attachment, Parts, RecordedSteps } from "./parts.ts";
import type { NodeAddresses, PodNetworkOptions } from "./plan.ts";
import { PodNamespaces, type PodPlace } from "./pod-namespaces.ts";
import { repairObjects, repairSettings } from "./repairs.ts";
import { readRoutes, type Survey, takeSurvey } from "./survey.ts";
import { Uplinks } from "./uplinks.ts";

/**
 * The links, addresses and routes of one node's pods (docs/spec/pod-network.md#5). Aliases and routes are the record; the memory has only
 * hints for finding links. Calls for one container must not overlap; calls for different containers may.
 *
 * Kernel work is synchronous (some 20 µs a step) except the deletion of links, which the kernel delays; give it the kernel's events.
 */
export class PodNetwork implements Disposable {
  readonly #kernel: Kernel;
  readonly #own: NetNs;
  readonly #host: NetStack;
  readonly #deletions: LinkDeletions;
  readonly #log: Logger;
  readonly #options: PodNetworkOptions;
  readonly #guard: LinkGuard | undefined;
  readonly #links: AttachmentLinks;
  readonly #known: KnownLinks;
  readonly #uplinks: Uplinks;
  readonly #parts: Parts;
  readonly #setUpOfHost: HostSetUp;
  readonly #memory: LinkMemory;
  readonly #attacher: Attacher;
  #judgesAll = false;
  /** `undefined` until the node's addresses are known. */
  #node: NodeAddresses | undefined;

  /** Opens the namespace that this process runs in. Throws `KernelError`. */
  constructor(
    deps: {
      readonly kernel: Kernel;
      readonly log: Logger;
      /** Called with the keys of the host's settings that are about to be changed. */
      readonly beforeSettings?: (keys: readonly string[]) => void;
      /** Returns true if the host's IPv6 forwarding was off before this or an earlier process turned it on. Default: false. */
      readonly forwardsForUs?: () => boolean;
      /** Guards each link from before it is up until it is gone. Without one nothing is guarded. */
      readonly guard?: LinkGuard | undefined;
      /** Default: the work is done, and not recorded. */
      readonly recorded?: RecordedSteps | undefined;
    },
    options: PodNetworkOptions,
  ) {
    this.#kernel = deps.kernel;
    this.#log = deps.log;
    this.#guard = deps.guard;
    this.#options = options;
    this.#own = deps.kernel.openNetNs("own");
    this.#host = deps.kernel.openStack(this.#own);
    this.#deletions = new LinkDeletions(this.#host.links);
    this.#links = new AttachmentLinks(this.#host.links, options);
    this.#known = new KnownLinks(options);
    this.#uplinks = new Uplinks(this.#host.routes);
    const shared = { kernel: this.#kernel, own: this.#own, host: this.#host, log: this.#log, options };
    this.#parts = {
      ...shared,
      ...{ guard: this.#guard, links: this.#links, known: this.#known, complained: new Set() },
      recorded: deps.recorded ?? ((_work, _link, run) => ({ value: run() })),
    };
    const { beforeSettings, forwardsForUs = () => false } = deps;
    this.#setUpOfHost = new HostSetUp(this.#parts, { uplinks: this.#uplinks, beforeSettings, forwardsForUs });
    this.#memory = new LinkMemory(this.#parts);
    this.#attacher = new Attacher(this.#parts, { hostSetUp: this.#setUpOfHost, deletions: this.#deletions });
  }

  [Symbol.dispose](): void {
    this.#host[Symbol.dispose]();
    this.#own[Symbol.dispose]();
  }

  /**
   * Sets forwarding and the rule of the pods' table. If this kernel refuses a step, that is logged once. Idempotent. Returns the number of
   * steps that were needed.
   */
  initHost(): number {
    return this.#setUpOfHost.run();
  }

  /** Returns why a pod that starts now gets no IPv6 address, as a sentence; `undefined` if it gets one. `mtuBytes`: an MTU that its configuration sets. */
  ipv6Fault(mtuBytes?: number): string | undefined {
    return this.#setUpOfHost.ipv6Fault(mtuBytes);
  }

  /** The attachments, as `CONTAINER/INTERFACE`, whose links have no IPv6 by their MTU. */
  withoutIpv6(): ReadonlySet<string> {
    const narrow = this.#host.links.list().filter(({ mtu }) => !carriesIpv6(mtu));
    return new Set(joinAttachments(narrow, []).map(({ containerId, ifname }) => `${containerId}/${ifname}`));
  }

  /** The node's own addresses, which pods use as their gateways. Call before the first set-up. */
  setNodeAddresses(node: NodeAddresses): void {
    this.#node = node;
  }

  /** True if an address is one of this host. The links of pods do not count: their gateways are addresses that the Node shows. */
  hasHostAddress(address: IpAddress): boolean {
    return this.#host.addresses.list().some((one) => {
      if (!one.address.equals(address)) return false;
      const link = this.#host.links.get({ index: one.linkIndex });
      return link !== undefined && parseAlias(link.alias ?? "") === undefined && !isOurMake(link);
    });
  }

  /** Removes the links of ADDs that never ended; returns their number. Call before serving. */
  removeHalfMade(): number {
    const stale = halfMadeLinks(this.#host.links.list());
    for (const link of stale) this.#host.links.delete(link.index);
    return stale.length;
  }

  /** Names of the links that {@link PodNetwork.removeHalfMade} would remove. */
  halfMade(): string[] {
    return halfMadeLinks(this.#host.links.list()).map((link) => link.name);
  }

  /** Every attachment that the kernel has. `registerFromMain` also reads routes in the main table, as old versions left them. */
  list({ registerFromMain = false }: { readonly registerFromMain?: boolean } = {}): AttachedPod[] {
    return joinAttachments(this.#host.links.list(), readRoutes(this.#host, { ...this.#options, registerFromMain }));
  }

  /**
   * As {@link PodNetwork.list}, and more: if no route shows a link's addresses, they are read inside its pod; attachments without addresses
   * are listed separately. It also lists links that are not attachments but have addresses of the pod network.
   */
  survey({ registerFromMain = false }: { readonly registerFromMain?: boolean } = {}): Survey {
    const readPod = <T>(link: Link, read: () => T): T | undefined => this.#memory.readPod(link, read);
    const survey = takeSurvey(this.#kernel, this.#host, { ...this.#options, registerFromMain }, readPod);
    this.#known.surveyed();
    this.#links.noteNames([...survey.attached, ...survey.bare]);
    this.#memory.learn([...survey.attached, ...survey.bare]);
    // If another program has removed the route of only one family, the pod still has the address of that family.
    const attached = survey.attached.map((one) => ({ ...one, addresses: this.#known.addressesOf(one) }));
    return { ...survey, attached };
  }

  /** The attachments with their namespaces. Looks through all namespaces of the machine. */
  places(): PodPlace[] {
    const byIndex = new Map(this.#host.links.list().map((link) => [link.index, link] as const));
    const namespaces = new PodNamespaces(this.#kernel, this.#host);
    return this.list().flatMap((one) => {
      const link = byIndex.get(one.ifindex);
      const place = link === undefined ? undefined : namespaces.placeOf(link);
      if (place === undefined) return [];
      const { ifname, containerId } = one;
      return [{ ...place, ifname, podUid: undefined, containerId, addresses: this.#known.addressesOf(one) }];
    });
  }

  /** Sets whether {@link PodNetwork.note} is called for each kernel event about links, addresses and routes. */
  set isWatched(isWatched: boolean) {
    this.#uplinks.isWatched = isWatched;
  }

  /**
   * Takes an event of the kernel. Cheap. The tear-down of a link ends with the event of its deletion; without events it ends some 20 ms
   * later.
   */
  note(event: MonitorEvent): void {
    this.#uplinks.note(event);
    if (event.kind === "link" && event.op === "delete") this.#deletions.gone(event.link.index);
  }

  /** True if an event reports the removal of an object that {@link PodNetwork.remake}, initHost or repair restores. Cheap. */
  isLoss(event: MonitorEvent): boolean {
    return this.#known.isLoss(event);
  }

  /**
   * Creates links again that another program has removed, if the pod's namespace still exists. `isWanted` says which attachments still
   * have their addresses. Call it before a survey. A link that cannot be made is tried again by the next call; its attachment is `waiting`
   * and keeps its addresses meanwhile.
   */
  remake(isWanted: (attachment: Attachment) => boolean): Remade {
    if (this.#node === undefined) return { made: [], waiting: [], failures: [] };
    return this.#memory.remake(isWanted, { node: this.#node, isHeld: !this.#judgesAll });
  }

  /**
   * Restores routes and the gateway's addresses that attachments lack on the host. `addressesOf` gives the addresses of an
   * attachment; if it returns none, the addresses of the survey count. Returns the number of restored objects. Throws the first failure,
   * after all were tried.
   */
  repair(
    { attached, bare }: Pick<Survey, "attached" | "bare">,
    addressesOf: (attachment: Attachment) => readonly IpAddress[] | undefined = () => undefined,
  ): number {
    return repairObjects(this.#parts, [...attached, ...bare], addressesOf, this.#node);
  }

  /**
   * Makes the settings of the host's ends of attachments what an ADD makes them. Reads up to four files for each link. A link that is deleted meanwhile
   * is skipped; another failure at one link, in `failures`, does not stop the others.
   */
  repairSettings({ attached, bare }: Pick<Survey, "attached" | "bare">): {
    readonly changes: number;
    readonly failures: readonly unknown[];
  } {
    return repairSettings(this.#parts, [...attached, ...bare]);
  }

  /**
   * Guards the links of a survey, and no others. `addressesOf` as for {@link PodNetwork.repair}. Returns the number of changes; 0 without a guard.
   * Throws errors of the guard.
   */
  guard(
    survey: Pick<Survey, "attached" | "bare" | "unowned">,
    addressesOf: (attachment: Attachment) => readonly IpAddress[] | undefined = () => undefined,
  ): number {
    if (this.#guard === undefined) return 0;
    const { guarded, keep } = planGuard(survey, this.#host.links.list(), this.#known, addressesOf, !this.#judgesAll);
    return this.#guard.sync(guarded, { keep });
  }

  /** Names of the links of attachments that are not guarded as they are to be; `undefined` without a guard. Throws errors of the guard. */
  unguarded(): string[] | undefined {
    if (this.#guard === undefined) return undefined;
    const attached = this.list();
    const links = attached.map(({ ifindex, addresses }) => ({
      ifindex,
      addresses,
      extra: this.#known.extraOf(ifindex),
      isHeld: false,
    }));
    const differing = new Set(this.#guard.differing(links));
    return attached.filter(({ ifindex }) => differing.has(ifindex)).map(({ hostName }) => hostName);
  }

  /**
   * Sets which sources attachments may use besides their addresses, from the next {@link PodNetwork.guard} on, and lets pods with such sources send ARP requests from
   * their own address, where their namespace can be found. Ignores attachments that do not exist.
   */
  setExtraSources(wanted: readonly { readonly attachment: Attachment; readonly extra: readonly Cidr[] }[]): void {
    for (const { attachment, extra } of wanted)
      for (const link of this.#known.setExtra(attachment, extra)) if (extra.length > 0) this.#announceOwn(link);
  }

  #announceOwn({ attachment, netns: at, ipv4, hostName }: KnownLink): void {
    if (at === undefined || ipv4 === undefined) return;
    try {
      using netns = openSameNetNs(this.#kernel, at);
      if (netns === undefined) return;
      using pod = this.#kernel.openStack(netns);
      announceOwn(pod, attachment.ifname);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      this.#log.warn(
        "a pod with extra sources may lose its gateway: arp_announce of its interface cannot be set to 2",
        {
          link: hostName,
          error: error.message,
        },
      );
    }
  }

  /** False until {@link PodNetwork.judgeAll}. */
  get judgesAll(): boolean {
    return this.#judgesAll;
  }

  /**
   * Call it when all is known that can be of the extra sources of links that an earlier process made: from the next {@link PodNetwork.guard} on all links are
   * judged. Until then those that were not guarded before are not, so that routers are not cut.
   */
  judgeAll(): void {
    this.#judgesAll = true;
  }

  /**
   * Cuts off lost attachments, and connects attachments again that are not lost any more. If `isLost` returns `undefined`, the link is not
   * changed; `kept` has those of these attachments that are cut off. The next {@link PodNetwork.repair} restores the routes of links that
   * were connected again. Idempotent. A failure at one link, in `failures`, does not stop the others.
   */
  cutOff(
    { attached, bare }: Pick<Survey, "attached" | "bare">,
    isLost: (attachment: Attachment) => boolean | undefined,
  ): CutOffResult {
    return cutOffLost(this.#parts, [...attached, ...bare], isLost);
  }

  /** Attachments of a CNI network: attachments that {@link PodNetwork.setUp} made for this network. */
  ofNetwork(network: string): AttachedPod[] {
    const links = this.#host.links.list().filter((link) => isOfNetwork(link, network));
    return joinAttachments(links, []);
  }

  /**
   * Makes an attachment, replacing an earlier one of the same container and interface. Without the request's IPv6 address where {@link PodNetwork.ipv6Fault} has a
   * reason; the result then lacks it. After a failure no object of the attachment stays. Throws {@link PodNetworkError} and `KernelError`.
   */
  async setUp(asked: SetUpRequest): Promise<CniResult> {
    const node = this.#node ?? { ipv4: undefined, ipv6: undefined };
    return await this.#attacher.setUp(asked, node);
  }

  /**
   * Removes an attachment with all its links. Succeeds if there is no link. Concurrent removals share the kernel's wait. An abort has no
   * effect once the kernel has the request.
   */
  async tearDown(attachment: Attachment, options: AbortOptions = {}): Promise<void> {
    await this.#attacher.tearDown(attachment, options);
  }

  /** Throws {@link PodNetworkError} `check-failed` naming the first missing part. */
  check(request: CheckRequest): void {
    this.#attacher.check(request);
  }
}
