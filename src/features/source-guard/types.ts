import type { Cidr, IpAddress } from "#base/ip";

/** `on` drops; `count` only counts, and lets pass. */
export type GuardMode = "on" | "count";

/** A link whose packets are judged. */
export interface GuardedLink {
  readonly ifindex: number;
  /** The addresses of the pod at the other end; packets with one of them as source may come in by no other link. */
  readonly addresses: readonly IpAddress[];
  /** Further sources that the link may use. `undefined`: not known yet, so all that the kernel has of the link stays. */
  readonly extra: readonly Cidr[] | undefined;
  /** True: while `extra` is not known, the link is not judged unless the kernel's tables judge it already. */
  readonly isHeld?: boolean;
}

/**
 * The reason why a packet is refused.
 * - `source`: it came in by a guarded link, and its source is not the link's.
 * - `arp`: the same, by the sender of an ARP packet.
 * - `link-local`: an IPv6 packet from or to a link-local address that is no neighbour discovery with the node, or has the ninth link-local source of its link.
 * - `outside`: it has the address of a guarded link's pod as source, and came in by a link that is not guarded.
 */
export type GuardReason = (typeof GUARD_REASONS)[number];

export const GUARD_REASONS = ["source", "arp", "link-local", "outside"] as const;

/** The first packet of a link that was refused for a reason; with `outside`, the first one with an address. */
export interface Refusal {
  readonly reason: GuardReason;
  /** The link by which it came in. */
  readonly ifindex: number;
  readonly source: IpAddress;
}
