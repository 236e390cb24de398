import type { AbortOptions } from "#base/async";
import type { Cidr, IpAddress, MacAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { MonitorEvent } from "#kernel/monitor";
import { type Kernel, type NetStack, OF_OTHERS, openSameNetNs } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { CniResult } from "#wire/cni";
import { parseAlias } from "./alias.ts";
import { announceOwn, createLink, finishLink } from "./apply.ts";
import { AttachmentLinks, refuseForeign } from "./attachment-links.ts";
import { openPodNetNs } from "./chained-network.ts";
import { checkAttachment } from "./check.ts";
import { applyCutOff, planCutOff } from "./cut-off.ts";
import { LinkDeletions } from "./deletions.ts";
import { PodNetworkError } from "./errors.ts";
import { applyHost, planHost } from "./host.ts";
import { carriedAddresses, carriesIpv6, ipv6MtuText } from "./ipv6-mtu.ts";
import { type KnownLink, KnownLinks } from "./known-links.ts";
import { isMarkedCutOff, isOfNetwork } from "./link-groups.ts";
import { type LinkGuard, planGuard } from "./link-guard.ts";
import { type AttachedPod, halfMadeLinks, isOurMake, joinAttachments } from "./listing.ts";
import {
  gatewayOf,
  type NodeAddresses,
  type PodNetworkOptions,
  type PodPlan,
  type PodRequest,
  planPod,
} from "./plan.ts";
import { PodNamespaces, type PodPlace } from "./pod-namespaces.ts";
import { remakeLink } from "./remake.ts";
import { applyRepair, planRepair } from "./repair.ts";
import { planSettings } from "./router-settings.ts";
import { readRoutes, type Survey, takeSurvey } from "./survey.ts";
import { Uplinks } from "./uplinks.ts";

type Attachment = PodRequest["attachment"];

/** The result of {@link PodNetwork.remake}. */
export interface Remade {
  readonly made: readonly Attachment[];
  /** Attachments whose links could not be made; the next call tries again. */
  readonly waiting: readonly Attachment[];
  readonly failures: readonly unknown[];
}

/**
 * Does work on the host's link of one pod that awaits nothing, and records that it is under way. `undefined`: it was not done, since the link is set aside. Throws what the
 * work throws.
 */
export type RecordedSteps = <T>(
  work: "attachment-reads" | "attachment-repairs",
  link: string,
  run: () => T,
) => { readonly value: T } | undefined;

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
  readonly #beforeSettings: ((keys: readonly string[]) => void) | undefined;
  readonly #forwardsForUs: () => boolean;
  readonly #guard: LinkGuard | undefined;
  readonly #recorded: RecordedSteps;
  readonly #links: AttachmentLinks;
  readonly #known: KnownLinks;
  readonly #uplinks: Uplinks;
  /** Failures that were already logged, so that each is logged once. Bounded by the number of steps. */
  readonly #complained = new Set<string>();
  /** The MTU of pods, and the uplink that it is of, unless it is set. */
  #mtu: { readonly bytes: number; readonly uplink: string | undefined } | undefined;
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
    this.#beforeSettings = deps.beforeSettings;
    this.#forwardsForUs = deps.forwardsForUs ?? (() => false);
    this.#guard = deps.guard;
    this.#recorded = deps.recorded ?? ((_work, _link, run) => ({ value: run() }));
    this.#options = options;
    this.#own = deps.kernel.openNetNs("own");
    this.#host = deps.kernel.openStack(this.#own);
    this.#deletions = new LinkDeletions(this.#host.links);
    this.#links = new AttachmentLinks(this.#host.links, options);
    this.#known = new KnownLinks(options);
    this.#uplinks = new Uplinks(this.#host.routes);
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
    const advertised = { uplinks: this.#uplinks.all, forwardsForUs: this.#forwardsForUs() };
    const plan = planHost(this.#host, this.#options, advertised);
    const settings = plan.flatMap((step) => (step.kind === "sysctl" ? step.key : []));
    if (settings.length > 0) this.#beforeSettings?.(settings);
    const failures = applyHost(this.#host, plan);
    for (const failure of failures) {
      const complaint = `${failure.step} ${failure.error}`;
      if (this.#complained.has(complaint)) continue;
      this.#complained.add(complaint);
      this.#log.warn("the network set-up of the host is incomplete", { step: failure.step, error: failure.error });
    }
    this.#mtu = this.#mtuOfPods();
    this.#complainOfMtu();
    return plan.length - failures.length;
  }

  #mtuOfPods(): { readonly bytes: number; readonly uplink: string | undefined } | undefined {
    if (this.#options.mtuBytes !== undefined) return { bytes: this.#options.mtuBytes, uplink: undefined };
    const uplink = this.#uplinks.narrowest(this.#host.links.list());
    return uplink === undefined ? undefined : { bytes: uplink.mtu, uplink: uplink.name };
  }

  /** Logs once that pods get no IPv6 addresses by the MTU, and again after an MTU that carries IPv6. */
  #complainOfMtu(): void {
    const why = this.ipv6Fault();
    if (why === undefined) this.#complained.delete("ipv6-mtu");
    if (why === undefined || this.#complained.has("ipv6-mtu")) return;
    this.#complained.add("ipv6-mtu");
    this.#log.warn("pods that start now get no IPv6 addresses, and pods of pools with IPv6 alone do not start", {
      why,
    });
  }

  /** Returns why a pod that starts now gets no IPv6 address, as a sentence; `undefined` if it gets one. `mtuBytes`: an MTU that its configuration sets. */
  ipv6Fault(mtuBytes?: number): string | undefined {
    const { bytes, uplink } = mtuBytes === undefined ? (this.#mtu ?? {}) : { bytes: mtuBytes, uplink: undefined };
    return bytes === undefined || carriesIpv6(bytes) ? undefined : ipv6MtuText(bytes, uplink);
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
    const readPod = <T>(link: Link, read: () => T): T | undefined => this.#readPod(link, read);
    const survey = takeSurvey(this.#kernel, this.#host, { ...this.#options, registerFromMain }, readPod);
    this.#known.surveyed();
    this.#links.noteNames([...survey.attached, ...survey.bare]);
    this.#learn([...survey.attached, ...survey.bare]);
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
    const remade = { made: [] as Attachment[], waiting: [] as Attachment[], failures: [] as unknown[] };
    if (this.#node === undefined) return remade;
    for (const [ifindex, lost] of this.#known.missing(this.#host.links.list())) {
      try {
        const parts = {
          kernel: this.#kernel,
          host: this.#host,
          own: this.#own,
          guard: this.#guard,
          isHeld: !this.#judgesAll,
        };
        const node = this.#node;
        const make = (): Link | undefined =>
          isWanted(lost.attachment) ? remakeLink(parts, lost, node, this.#options) : undefined;
        const done = this.#recorded("attachment-repairs", lost.hostName, make);
        if (done === undefined) {
          remade.waiting.push(lost.attachment);
          continue;
        }
        const link = done.value;
        this.#known.delete(ifindex);
        if (link === undefined) continue;
        this.#known.set(link.index, lost);
        remade.made.push(lost.attachment);
      } catch (error) {
        remade.failures.push(error);
        remade.waiting.push(lost.attachment);
      }
    }
    return remade;
  }

  /** Learns the attachments of a survey that this process did not make: their namespaces are looked up once. */
  #learn(attached: readonly AttachedPod[]): void {
    const unknown = attached.filter(({ ifindex }) => !this.#known.has(ifindex) && !this.#known.isLeaving(ifindex));
    if (unknown.length === 0) return;
    const links = new Map(this.#host.links.list().map((link) => [link.index, link] as const));
    const namespaces = new PodNamespaces(this.#kernel, this.#host);
    for (const { ifindex, containerId, ifname, pool, hostName, addresses } of unknown) {
      const link = links.get(ifindex);
      if (link === undefined) continue;
      const ofFamily = (family: 4 | 6): IpAddress | undefined => addresses.find((one) => one.family === family);
      const read = this.#readPod(link, () => ({ end: namespaces.endOf(link) }));
      // The next survey tries again.
      if (read === undefined) continue;
      const { end } = read;
      this.#known.learn(ifindex, {
        attachment: { containerId, ifname },
        pool,
        hostName,
        group: link.group,
        mtuBytes: link.mtu,
        ipv4: ofFamily(4),
        ipv6: ofFamily(6),
        extra: undefined,
        mac: end?.mac,
        netns: end,
      });
    }
  }

  /**
   * Reads what a pod may have changed, in its namespace. `undefined`: it cannot be read now, or its link is set aside. One pod that cannot be read must not keep the others
   * from being surveyed.
   */
  #readPod<T>({ name }: Link, read: () => T): T | undefined {
    try {
      return this.#recorded("attachment-reads", name, read)?.value;
    } catch (error) {
      if (!isKernelError(error)) throw error;
      if (!this.#complained.has("pod")) {
        this.#complained.add("pod");
        this.#log.warn("the namespace of a pod cannot be read: its link is not made again when it is removed", {
          link: name,
          error: error.message,
        });
      }
      return undefined;
    }
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
    const links = new Map(this.#host.links.list().map((link) => [link.index, link] as const));
    const wanted = [...attached, ...bare].flatMap((one) => {
      const link = links.get(one.ifindex);
      return link === undefined
        ? []
        : [{ link, addresses: carriedAddresses(addressesOf(one) ?? one.addresses, link.mtu) }];
    });
    const routes = readRoutes(this.#host, { ...this.#options, registerFromMain: false });
    const actual = { routes, addresses: this.#host.addresses.list() };
    const node = this.#node ?? { ipv4: undefined, ipv6: undefined };
    const gateway4 = this.#node === undefined ? undefined : gatewayOf(this.#node, this.#options);
    const steps = planRepair(wanted, actual, node, gateway4);
    const failures = steps.flatMap((step) => {
      try {
        applyRepair(this.#host, step, this.#options);
        return [];
      } catch (error) {
        return [error];
      }
    });
    if (failures.length > 0) throw failures[0];
    return steps.length;
  }

  /**
   * Makes the settings of the host's ends of attachments what an ADD makes them. Reads up to four files for each link. A link that is deleted meanwhile
   * is skipped; another failure at one link, in `failures`, does not stop the others.
   */
  repairSettings({ attached, bare }: Pick<Survey, "attached" | "bare">): {
    readonly changes: number;
    readonly failures: readonly unknown[];
  } {
    const links = [...attached, ...bare].map(({ ifindex, hostName }) => ({
      link: { name: hostName },
      ipv6: this.#known.mayHaveIpv6(ifindex),
    }));
    const steps = planSettings(this.#host.sysctl, links);
    const failures = steps.flatMap(({ key, value }) => {
      try {
        this.#host.sysctl.set(key, value);
        return [];
      } catch (error) {
        return isKernelError(error, "not-found") ? [] : [error];
      }
    });
    const [first] = steps;
    if (first !== undefined && !this.#complained.has("settings")) {
      this.#complained.add("settings");
      this.#log.info(
        "settings of the host's ends of pods' links were written again; another program, such as sysctl --system or a rule of udev, overwrites them",
        { settings: steps.length, first: `${first.key}=${first.value}` },
      );
    }
    return { changes: steps.length - failures.length, failures };
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
  ): {
    readonly cut: readonly Attachment[];
    readonly joined: readonly Attachment[];
    readonly kept: readonly Attachment[];
    readonly failures: readonly unknown[];
  } {
    const links = new Map(this.#host.links.list().map((link) => [link.index, link] as const));
    const all = [...attached, ...bare];
    const byIndex = new Map(all.map((one) => [one.ifindex, one] as const));
    const wanted = all.flatMap((one) => {
      const link = links.get(one.ifindex);
      return link === undefined ? [] : [{ link, cutOff: isLost(one) }];
    });
    const failures: unknown[] = [];
    const kept = wanted
      .filter(({ link, cutOff }) => cutOff === undefined && isMarkedCutOff(link))
      .flatMap(({ link }) => byIndex.get(link.index) ?? [])
      .map(({ containerId, ifname }) => ({ containerId, ifname }));
    const done = { cut: [] as Attachment[], joined: [] as Attachment[], kept, failures };
    for (const step of planCutOff(wanted)) {
      const { containerId = "", ifname = "" } = byIndex.get(step.link.index) ?? {};
      try {
        applyCutOff(this.#host.links, step);
        this.#known.setGroup(step.link.index, step.group);
        (step.op === "cut" ? done.cut : done.joined).push({ containerId, ifname });
      } catch (error) {
        failures.push(error);
      }
    }
    return done;
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
  async setUp(
    asked: PodRequest & { readonly netns: string; readonly mtuBytes?: number | undefined },
  ): Promise<CniResult> {
    const fault = asked.ipv6 === undefined ? undefined : this.ipv6Fault(asked.mtuBytes);
    if (fault !== undefined && asked.ipv4 === undefined)
      throw new PodNetworkError("mtu-too-small", `the pod has an IPv6 address alone: ${fault}`);
    const request = fault === undefined ? asked : { ...asked, ipv6: undefined };
    using netns = this.#openNetns(request.netns);
    using pod = this.#kernel.openStack(netns);
    const earlier = this.#links.earlierOf(request);
    refuseForeign(pod, request.attachment.ifname, earlier);
    for (const link of earlier) await this.#delete(link);
    const node = this.#node ?? { ipv4: undefined, ipv6: undefined };
    const options = { ...this.#options, mtuBytes: request.mtuBytes ?? this.#mtu?.bytes };
    const plan = planPod(request, node, options, this.#links.freeName(request));
    const link = createLink(this.#host, plan, netns);
    try {
      const { extraSources = [] } = request;
      this.#guard?.attach({
        ifindex: link.index,
        addresses: present(request.ipv4, request.ipv6),
        extra: extraSources,
        isHeld: false,
      });
      const podLink = finishLink({ host: this.#host, pod, link }, plan, this.#options);
      const { attachment, pool, ipv4, ipv6 } = request;
      const { hostName, group, mtuBytes } = plan;
      const at = { path: request.netns, inode: netns.inode };
      const { mac } = podLink;
      this.#known.set(link.index, {
        ...{ attachment, pool, ipv4, ipv6, extra: extraSources, mac, hostName, group, mtuBytes },
        netns: at,
      });
      return resultOf(plan, request.netns, podLink, link);
    } catch (error) {
      await this.#undo(link, error);
      throw error;
    }
  }

  /**
   * Removes an attachment with all its links. Succeeds if there is no link. Concurrent removals share the kernel's wait. An abort has no
   * effect once the kernel has the request.
   */
  async tearDown(attachment: Attachment, options: AbortOptions = {}): Promise<void> {
    for (const link of this.#links.find(attachment)) await this.#delete(link, options);
  }

  /** Throws {@link PodNetworkError} `check-failed` naming the first missing part. */
  check(request: {
    readonly attachment: Attachment;
    readonly netns: string;
    /** The addresses that the attachment was given. */
    readonly addresses: readonly IpAddress[];
    readonly expected: CniResult | undefined;
    /** The address that the runtime demanded for the pod's interface. */
    readonly mac?: MacAddress | undefined;
  }): void {
    const link = this.#links.find(request.attachment)[0];
    const { containerId, ifname } = request.attachment;
    if (link === undefined) {
      throw new PodNetworkError(
        "check-failed",
        `no host link has the alias of container ${containerId}, interface ${ifname}`,
      );
    }
    using netns = this.#openNetns(request.netns);
    using pod = this.#kernel.openStack(netns, OF_OTHERS);
    checkAttachment({
      host: this.#host,
      pod,
      link,
      attachment: request.attachment,
      options: this.#options,
      addresses: carriedAddresses(request.addresses, link.mtu),
      expected: request.expected,
      mac: request.mac,
    });
  }

  #openNetns(path: string): NetNs {
    return openPodNetNs(this.#kernel, path, this.#own);
  }

  /** Removes a half-made attachment. If the removal fails too, both failures are thrown, and a part of the attachment stays. */
  async #undo(link: Link, cause: unknown): Promise<void> {
    try {
      await this.#delete(link);
    } catch (error) {
      throw new AggregateError([cause, error], `the attachment failed, and its link ${link.name} could not be removed`);
    }
  }

  /** The namespace of the other end may be deleted at the same time, which removes the link too. */
  async #delete(link: Link, options: AbortOptions = {}): Promise<void> {
    this.#known.leave(link.index);
    try {
      await this.#deletions.delete(link, options);
    } catch (error) {
      if (!isKernelError(error, "no-device", "not-found")) throw error;
    } finally {
      this.#known.left(link.index);
    }
    this.#guard?.detach(link.index);
  }
}

function present(...addresses: readonly (IpAddress | undefined)[]): IpAddress[] {
  return addresses.filter((address) => address !== undefined);
}

/** docs/spec/pod-network.md#5.2: no routes, no gateway, no dns; `mtu` is shown from 1.1.0 on. */
function resultOf(plan: PodPlan, sandbox: string, pod: Link, host: Link): CniResult {
  return {
    interfaces: [
      { name: plan.podName, mac: pod.mac?.toString() ?? "", mtu: pod.mtu, sandbox },
      { name: plan.hostName, mac: plan.hostMac.toString(), mtu: host.mtu },
    ],
    ips: plan.podAddresses.map(({ address, prefixLength }) => ({
      address: `${address}/${prefixLength}`,
      interface: 0,
    })),
  };
}
