import type { AbortOptions } from "#base/async";
import type { IpAddress, MacAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import { OF_OTHERS } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { CniResult } from "#wire/cni";
import { createLink, finishLink } from "./apply.ts";
import { refuseForeign } from "./attachment-links.ts";
import { openPodNetNs } from "./chained-network.ts";
import { checkAttachment } from "./check.ts";
import type { LinkDeletions } from "./deletions.ts";
import { PodNetworkError } from "./errors.ts";
import type { HostSetUp } from "./host-set-up.ts";
import { carriedAddresses } from "./ipv6-mtu.ts";
import type { Attachment, Parts } from "./parts.ts";
import { type NodeAddresses, type PodPlan, type PodRequest, planPod } from "./plan.ts";

/** A request for an attachment. */
export type SetUpRequest = PodRequest & {
  /** The path of the pod's network namespace. */
  readonly netns: string;
  /** The MTU that the configuration sets, in bytes; `undefined`: that of the uplinks. */
  readonly mtuBytes?: number | undefined;
};

/** The parts of an attachment that are compared. */
export interface CheckRequest {
  readonly attachment: Attachment;
  readonly netns: string;
  /** The addresses that the attachment was given. */
  readonly addresses: readonly IpAddress[];
  readonly expected: CniResult | undefined;
  /** The address that the runtime demanded for the pod's interface. */
  readonly mac?: MacAddress | undefined;
}

/** Makes, removes and checks the links of single attachments. */
export class Attacher {
  readonly #parts: Parts;
  readonly #deps: { readonly hostSetUp: HostSetUp; readonly deletions: LinkDeletions };

  constructor(parts: Parts, deps: { readonly hostSetUp: HostSetUp; readonly deletions: LinkDeletions }) {
    this.#parts = parts;
    this.#deps = deps;
  }

  /**
   * Makes an attachment, replacing an earlier one of the same container and interface. Without the request's IPv6 address where {@link PodNetwork.ipv6Fault} has a
   * reason; the result then lacks it. After a failure no object of the attachment stays. Throws {@link PodNetworkError} and `KernelError`.
   */
  async setUp(asked: SetUpRequest, node: NodeAddresses): Promise<CniResult> {
    const fault = asked.ipv6 === undefined ? undefined : this.#deps.hostSetUp.ipv6Fault(asked.mtuBytes);
    if (fault !== undefined && asked.ipv4 === undefined)
      throw new PodNetworkError("mtu-too-small", `the pod has an IPv6 address alone: ${fault}`);
    const request = fault === undefined ? asked : { ...asked, ipv6: undefined };
    using netns = this.#openNetns(request.netns);
    using pod = this.#parts.kernel.openStack(netns);
    const earlier = this.#parts.links.earlierOf(request);
    refuseForeign(pod, request.attachment.ifname, earlier);
    for (const link of earlier) await this.#delete(link);
    const options = { ...this.#parts.options, mtuBytes: request.mtuBytes ?? this.#deps.hostSetUp.mtuBytes };
    const plan = planPod(request, node, options, this.#parts.links.freeName(request));
    const link = createLink(this.#parts.host, plan, netns);
    try {
      const { extraSources = [] } = request;
      this.#parts.guard?.attach({
        ifindex: link.index,
        addresses: present(request.ipv4, request.ipv6),
        extra: extraSources,
        isHeld: false,
      });
      const podLink = finishLink({ host: this.#parts.host, pod, link }, plan, this.#parts.options);
      const { attachment, pool, ipv4, ipv6 } = request;
      const { hostName, group, mtuBytes } = plan;
      const at = { path: request.netns, inode: netns.inode };
      const { mac } = podLink;
      this.#parts.known.set(link.index, {
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
    for (const link of this.#parts.links.find(attachment)) await this.#delete(link, options);
  }

  /** Throws {@link PodNetworkError} `check-failed` naming the first missing part. */
  check(request: CheckRequest): void {
    const link = this.#parts.links.find(request.attachment)[0];
    const { containerId, ifname } = request.attachment;
    if (link === undefined) {
      throw new PodNetworkError(
        "check-failed",
        `no host link has the alias of container ${containerId}, interface ${ifname}`,
      );
    }
    using netns = this.#openNetns(request.netns);
    using pod = this.#parts.kernel.openStack(netns, OF_OTHERS);
    checkAttachment({
      host: this.#parts.host,
      pod,
      link,
      attachment: request.attachment,
      options: this.#parts.options,
      addresses: carriedAddresses(request.addresses, link.mtu),
      expected: request.expected,
      mac: request.mac,
    });
  }

  #openNetns(path: string): NetNs {
    return openPodNetNs(this.#parts.kernel, path, this.#parts.own);
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
    this.#parts.known.leave(link.index);
    try {
      await this.#deps.deletions.delete(link, options);
    } catch (error) {
      if (!isKernelError(error, "no-device", "not-found")) throw error;
    } finally {
      this.#parts.known.left(link.index);
    }
    this.#parts.guard?.detach(link.index);
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
