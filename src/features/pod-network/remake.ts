import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import { type Kernel, type NetStack, openSameNetNs } from "#kernel/net";
import { type NetNs, sameNetNs } from "#kernel/netns";
import { createLink, finishLink } from "./apply.ts";
import type { KnownLink } from "./known-links.ts";
import { isMarkedCutOff } from "./link-groups.ts";
import type { LinkGuard } from "./link-guard.ts";
import { type NodeAddresses, type PodNetworkOptions, planPod } from "./plan.ts";

/**
 * Makes the link of an attachment again that another program has removed, with the same name, IP addresses and MAC addresses. Returns
 * `undefined`, and changes nothing, if the pod's namespace is deleted, as at the end of a pod, or if the name of either end is taken. After a
 * failure no part of the link stays. Throws `KernelError` and `PodNetworkError`.
 */
export function remakeLink(
  at: {
    readonly kernel: Kernel;
    readonly host: NetStack;
    readonly own: NetNs;
    readonly guard: LinkGuard | undefined;
    /** As in `GuardedPodLink`. */
    readonly isHeld: boolean;
  },
  lost: KnownLink,
  node: NodeAddresses,
  options: PodNetworkOptions,
): Link | undefined {
  if (lost.netns === undefined || isMarkedCutOff(lost)) return undefined;
  if (lost.ipv4 === undefined && lost.ipv6 === undefined) return undefined;
  using netns = openSameNetNs(at.kernel, lost.netns);
  if (netns === undefined || sameNetNs(netns, at.own)) return undefined;
  using pod = at.kernel.openStack(netns);
  const { attachment, pool, ipv4, ipv6, mac, hostName, mtuBytes } = lost;
  if (pod.links.get({ name: attachment.ifname }) !== undefined) return undefined;
  if (at.host.links.get({ name: hostName }) !== undefined) return undefined;
  const request = { attachment, pool, ipv4, ipv6, mac, pod: { namespace: "", name: "" }, extraSources: lost.extra };
  const plan = { ...planPod(request, node, { ...options, mtuBytes }, hostName), group: lost.group };
  const link = createLink(at.host, plan, netns);
  try {
    const addresses = [ipv4, ipv6].filter((address) => address !== undefined);
    at.guard?.attach({ ifindex: link.index, addresses, extra: lost.extra, isHeld: at.isHeld });
    finishLink({ host: at.host, pod, link }, plan, options);
    return link;
  } catch (error) {
    deleteLink(at.host, link);
    throw error;
  }
}

function deleteLink(host: NetStack, link: Link): void {
  try {
    host.links.delete(link.index);
  } catch (error) {
    if (!isKernelError(error, "no-device", "not-found")) throw error;
  }
}
