import type { Cidr, IpAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import { parseAlias } from "./alias.ts";
import { carriedAddresses } from "./ipv6-mtu.ts";
import type { KnownLinks } from "./known-links.ts";
import type { Survey } from "./survey.ts";

/** A pod's link, with the sources that its packets may have. */
export interface GuardedPodLink {
  readonly ifindex: number;
  readonly addresses: readonly IpAddress[];
  /** Sources besides the pod's addresses. `undefined`: not known yet. */
  readonly extra: readonly Cidr[] | undefined;
  /** True: while `extra` is not known, the link is not judged unless the guard of an earlier process judges it already. */
  readonly isHeld: boolean;
}

/** Judges packets by the link that they come in by (docs/spec/pod-network.md#5.7). Its methods are synchronous, and throw errors of its module. */
export interface LinkGuard {
  attach(...links: readonly GuardedPodLink[]): void;
  /** Called when the link is gone. */
  detach(ifindex: number): void;
  /** Makes the guarded links those of the list; what is guarded of links in `keep` stays. Returns the number of changes. */
  sync(links: readonly GuardedPodLink[], options: { readonly keep: ReadonlySet<number> }): number;
  /** The ifindexes of links that are not guarded as they are to be. */
  differing(links: readonly GuardedPodLink[]): readonly number[];
}

/**
 * Pure: the links that a survey found, and the ifindexes of those whose addresses cannot be told now: links that are being made, or whose making could not be
 * undone, and links whose pods cannot be read.
 */
export function planGuard(
  survey: Pick<Survey, "attached" | "bare" | "unowned">,
  links: readonly Link[],
  known: Pick<KnownLinks, "extraOf">,
  addressesOf: (attachment: {
    readonly containerId: string;
    readonly ifname: string;
  }) => readonly IpAddress[] | undefined,
  isHeld: boolean,
): { readonly guarded: readonly GuardedPodLink[]; readonly keep: ReadonlySet<number> } {
  const keep = new Set(
    links.filter(({ alias = "" }) => parseAlias(alias)?.kind === "pending").map(({ index }) => index),
  );
  const mtus = new Map(links.map(({ index, mtu }) => [index, mtu] as const));
  const guarded: GuardedPodLink[] = [];
  const note = (ifindex: number, all: readonly IpAddress[]): void => {
    const addresses = carriedAddresses(all, mtus.get(ifindex));
    if (addresses.length === 0) keep.add(ifindex);
    else guarded.push({ ifindex, addresses, extra: known.extraOf(ifindex), isHeld });
  };
  for (const one of [...survey.attached, ...survey.bare]) note(one.ifindex, addressesOf(one) ?? one.addresses);
  for (const one of survey.unowned) note(one.ifindex, one.addresses);
  return { guarded, keep };
}
