import type { AbortOptions } from "#base/async";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { Kernel, NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { CniResult } from "#wire/cni";
import { parseAlias } from "./alias.ts";
import { applyHostSide, applyPodSide } from "./apply.ts";
import { checkAttachment } from "./check.ts";
import { LinkDeletions } from "./deletions.ts";
import { PodNetworkError } from "./errors.ts";
import { applyHost, planHost, uplinkMtu } from "./host.ts";
import { type AttachedPod, halfMadeLinks, isUnmarkedOurs, joinAttachments } from "./listing.ts";
import {
  calicoName,
  hostNameOf,
  type NodeAddresses,
  type PodNetworkOptions,
  type PodPlan,
  type PodRequest,
  planPod,
} from "./plan.ts";

/** Names tried for a host link before giving up. */
const MAX_NAME_ATTEMPTS = 8;

type Attachment = PodRequest["attachment"];

/**
 * The links, addresses and routes of one node's pods (spec pod-network section 5). It keeps nothing in memory: aliases and
 * routes are the record. Calls for one container must not overlap; those for different ones may.
 *
 * Kernel work is synchronous (some 20 µs a step) except the deletion of links, which the kernel makes wait.
 */
export class PodNetwork implements Disposable {
  readonly #kernel: Kernel;
  readonly #own: NetNs;
  readonly #host: NetStack;
  readonly #deletions: LinkDeletions;
  readonly #log: Logger;
  readonly #options: PodNetworkOptions;
  #mtuBytes: number | undefined;
  #node: NodeAddresses = { ipv4: undefined, ipv6: undefined };

  /** Opens the namespace that this process runs in. Throws `KernelError`. */
  constructor(deps: { readonly kernel: Kernel; readonly log: Logger }, options: PodNetworkOptions) {
    this.#kernel = deps.kernel;
    this.#log = deps.log;
    this.#options = options;
    this.#own = deps.kernel.openNetNs("own");
    this.#host = deps.kernel.openStack(this.#own);
    this.#deletions = new LinkDeletions(this.#host.links);
  }

  [Symbol.dispose](): void {
    this.#host[Symbol.dispose]();
    this.#own[Symbol.dispose]();
  }

  /** Forwarding and the rule of the pods' table; what this kernel refuses is logged. Repeats harmlessly. */
  initHost(): void {
    const plan = planHost(this.#host, this.#options);
    for (const failure of applyHost(this.#host, plan)) {
      this.#log.warn("host network set-up is incomplete", { step: failure.step, error: failure.error });
    }
    this.#mtuBytes = this.#options.mtuBytes ?? uplinkMtu(this.#host.links.list(), this.#host.routes);
  }

  /** The node's own addresses, which pods have as their gateways. Call before the first set-up. */
  setNodeAddresses(node: NodeAddresses): void {
    this.#node = node;
  }

  /** Removes what ADDs that never ended have left; returns how many links that were. Call before serving. */
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
  list(options: { readonly registerFromMain?: boolean } = {}): AttachedPod[] {
    const tables = [this.#options.tableId, ...(options.registerFromMain === true ? [254] : [])];
    const routes = tables.flatMap((table) =>
      ([4, 6] as const).flatMap((family) => this.#host.routes.list({ family, table })),
    );
    const known = routes.filter(
      (route) => route.table !== 254 || route.protocol === this.#options.protocolId || route.protocol === 3,
    );
    return joinAttachments(this.#host.links.list(), known);
  }

  /**
   * Makes an attachment, replacing an earlier one of the same container and interface. On failure nothing of it stays.
   * Throws {@link PodNetworkError} and `KernelError`.
   */
  async setUp(
    request: PodRequest & { readonly netns: string; readonly mtuBytes?: number | undefined },
  ): Promise<CniResult> {
    using netns = this.#openNetns(request.netns);
    using pod = this.#kernel.openStack(netns);
    await this.#removeEarlier(pod, request);
    const options = { ...this.#options, mtuBytes: request.mtuBytes ?? this.#mtuBytes };
    const plan = planPod(request, this.#node, options, this.#freeName(request));
    const link = this.#create(plan, netns);
    try {
      applyHostSide(this.#host, link.index, plan, this.#options);
      const podLink = applyPodSide(pod, plan);
      this.#host.links.set(link.index, { alias: plan.alias });
      return resultOf(plan, request.netns, podLink, link);
    } catch (error) {
      await this.#delete(link);
      throw error;
    }
  }

  /**
   * Removes an attachment. Succeeds when there is none. Those of many pods at once share the kernel's wait. The signal is
   * heeded until the kernel is asked.
   */
  async tearDown(attachment: Attachment, options: AbortOptions = {}): Promise<void> {
    for (const link of this.#find(attachment)) await this.#delete(link, options);
  }

  /** Throws {@link PodNetworkError} `check-failed` naming the first thing that is missing. */
  check(request: {
    readonly attachment: Attachment;
    readonly netns: string;
    readonly expected: CniResult | undefined;
  }): void {
    const link = this.#find(request.attachment)[0];
    const { containerId, ifname } = request.attachment;
    if (link === undefined) {
      throw new PodNetworkError(
        "check-failed",
        `no host link has the alias of container ${containerId}, interface ${ifname}`,
      );
    }
    using netns = this.#openNetns(request.netns);
    using pod = this.#kernel.openStack(netns);
    checkAttachment({
      host: this.#host,
      pod,
      link,
      ifname,
      tableId: this.#options.tableId,
      expected: request.expected,
    });
  }

  #openNetns(path: string): NetNs {
    try {
      return this.#kernel.openNetNs({ path });
    } catch (error) {
      if (!isKernelError(error, "not-found", "invalid")) throw error;
      throw new PodNetworkError("netns-not-found", `${path} is not a network namespace (any more)`, { cause: error });
    }
  }

  /** Host links of an attachment: by the name it has with us, else by alias. */
  #find(attachment: Attachment): Link[] {
    const isOurs = (link: Link): boolean => {
      const alias = parseAlias(link.alias ?? "");
      return alias?.containerId === attachment.containerId && alias.ifname === attachment.ifname;
    };
    const named = this.#options.compatCalico ? undefined : this.#host.links.get({ name: hostNameOf(attachment) });
    if (named !== undefined && (isOurs(named) || isUnmarkedOurs(named))) return [named];
    return this.#host.links.list().filter(isOurs);
  }

  /** An interface of that name in the pod is replaced when it is ours, and refused when it is not. */
  async #removeEarlier(pod: NetStack, { attachment, pod: identity }: PodRequest): Promise<void> {
    if (this.#options.compatCalico) {
      const named = this.#host.links.get({ name: calicoName(identity) });
      if (named !== undefined) await this.#delete(named);
    }
    const existing = pod.links.get({ name: attachment.ifname });
    if (existing === undefined) return;
    const peer =
      existing.kind === "veth" && existing.peerIndex !== undefined
        ? this.#host.links.get({ index: existing.peerIndex })
        : undefined;
    const ours = peer !== undefined && this.#find(attachment).some((link) => link.index === peer.index);
    if (!ours) {
      throw new PodNetworkError(
        "interface-exists",
        `the pod already has an interface ${attachment.ifname}, which is not ours`,
      );
    }
    await this.#delete(peer);
  }

  #freeName(request: PodRequest): string {
    if (this.#options.compatCalico) return calicoName(request.pod);
    for (let attempt = 0; attempt < MAX_NAME_ATTEMPTS; attempt += 1) {
      const name = hostNameOf(request.attachment, attempt);
      if (this.#host.links.get({ name }) === undefined) return name;
    }
    throw new PodNetworkError(
      "interface-exists",
      `no host link name is free for container ${request.attachment.containerId}`,
    );
  }

  #create(plan: PodPlan, netns: NetNs): Link {
    return this.#host.links.create({
      kind: "veth",
      name: plan.hostName,
      mac: plan.hostMac,
      mtu: plan.mtuBytes,
      alias: plan.pendingAlias,
      peer: { name: plan.podName, netns, mtu: plan.mtuBytes },
    });
  }

  /** The other end's namespace may be going away at the same time: gone is what we want. */
  async #delete(link: Link, options: AbortOptions = {}): Promise<void> {
    try {
      await this.#deletions.delete(link, options);
    } catch (error) {
      if (!isKernelError(error, "no-device", "not-found")) throw error;
    }
  }
}

/** Spec pod-network 5.2: no routes, no gateway, no dns; `mtu` is shown from 1.1.0 on. */
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
