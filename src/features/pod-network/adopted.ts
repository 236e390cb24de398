import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import { formatAlias, MAX_ALIAS_BYTES, parseAlias } from "./alias.ts";
import { PodNetworkError } from "./errors.ts";

/** The interface of another plugin, which coil is chained behind: both of its ends. */
export interface PluginLink {
  /** The host's end. */
  readonly link: Link;
  readonly podLink: Link;
}

/** A pod's interface that has an alias of coild, from a list of the host's links. */
export interface AdoptedPod {
  readonly podUid: string;
  readonly ifname: string;
  /** The index of the host's end. */
  readonly ifindex: number;
  readonly hostName: string;
}

/**
 * Finds the ends of the pod's interface: the end in the host is the link whose peer is the pod's interface, regardless of names and order
 * in a result (docs/spec/pod-network.md#5.3). Throws {@link PodNetworkError} `no-interface` and `no-host-side`.
 */
export function findPluginLink(
  at: { readonly host: NetStack; readonly pod: NetStack; readonly netns: NetNs },
  ifname: string,
): PluginLink {
  const podLink = at.pod.links.get({ name: ifname });
  if (podLink === undefined) {
    throw new PodNetworkError(
      "no-interface",
      `the pod has no interface ${ifname}: the plugin before coil did not make it`,
    );
  }
  const link = podLink.peerIndex === undefined ? undefined : at.host.links.get({ index: podLink.peerIndex });
  // A link with this index may be an unrelated link of the host, so its peer must be in the pod's namespace.
  const isPeer =
    link?.kind === "veth" &&
    link.peerIndex === podLink.index &&
    link.peerNetNsId !== undefined &&
    link.peerNetNsId === at.host.netnsIds.get(at.netns);
  if (!isPeer || link === undefined) {
    const kind = podLink.kind ?? "physical";
    throw new PodNetworkError(
      "no-host-side",
      `interface ${ifname} of the pod (${kind}) has no end in the node's namespace; coil can be behind plugins that make veth pairs, such as ptp and bridge`,
    );
  }
  return { link, podLink };
}

/** Marks the host's end as the pod's. Throws {@link PodNetworkError} `bad-name` for a UID that an alias cannot hold. */
export function markAdopted(host: NetStack, link: Link, pod: { readonly uid: string; readonly ifname: string }): void {
  const alias = formatAlias({ kind: "adopted", podUid: pod.uid, ifname: pod.ifname });
  if (pod.uid === "" || pod.uid.includes(":") || Buffer.byteLength(alias) > MAX_ALIAS_BYTES) {
    throw new PodNetworkError(
      "bad-name",
      `the pod's UID ${JSON.stringify(pod.uid.slice(0, 64))} cannot be part of an alias`,
    );
  }
  if (link.alias !== alias) host.links.set(link.index, { alias });
}

/** True when {@link markAdopted} has marked the link for this pod. */
export function isAdoptedBy(link: Link, pod: { readonly uid: string; readonly ifname: string }): boolean {
  const alias = parseAlias(link.alias ?? "");
  return alias?.kind === "adopted" && alias.podUid === pod.uid && alias.ifname === pod.ifname;
}

/** Pure: the links that are marked, the most recent link of a pod first. */
export function adoptedLinks(links: readonly Link[]): AdoptedPod[] {
  return links
    .flatMap((link) => {
      const alias = parseAlias(link.alias ?? "");
      if (alias?.kind !== "adopted") return [];
      return [{ podUid: alias.podUid, ifname: alias.ifname, ifindex: link.index, hostName: link.name }];
    })
    .sort((a, b) => b.ifindex - a.ifindex);
}
