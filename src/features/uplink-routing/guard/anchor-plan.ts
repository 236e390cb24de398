import type { IpAddress } from "#base/ip";
import type { ListenerSettings } from "#base/uplink-model";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";

/** Protocol (IFA_PROTO) of addresses that we assign to bridges: it distinguishes our addresses from those of other programs. */
export const ANCHOR_PROTOCOL = 0x49;

/** The part of a pod listener that concerns its address. */
export type Anchored = Pick<ListenerSettings, "address" | "interface" | "assignAddress">;

/** An address to assign to its bridge, or to remove from it. */
export interface AnchorChange {
  readonly kind: "assign" | "remove";
  readonly linkIndex: number;
  readonly ifName: string;
  readonly address: IpAddress;
}

/** The kernel state that anchors depend on. */
export interface AnchorListing {
  readonly links: readonly Pick<Link, "index" | "name">[];
  readonly addresses: readonly Pick<Address, "linkIndex" | "address" | "prefixLength" | "protocol">[];
}

/**
 * The changes that assign the wanted anchors to their bridges, as a /32 or /128, and remove our anchors that are no longer wanted (spec
 * uplink-proxy 12). An address that the bridge already has is not changed. For a missing bridge there is no change yet. `former`
 * are our earlier anchors on a kernel that does not keep IFA_PROTO. Pure.
 */
export function planAnchors(
  { links, addresses }: AnchorListing,
  wanted: readonly Anchored[],
  former: readonly Anchored[],
): AnchorChange[] {
  const nameOf = nameIn(links);
  const changes: AnchorChange[] = [];
  for (const { linkIndex, address, prefixLength, protocol } of addresses) {
    const ifName = nameOf(linkIndex);
    const isOneOf = (listeners: readonly Anchored[]): boolean =>
      listeners.some((one) => one.assignAddress && isAt(one, ifName, address));
    const isOurs = prefixLength === address.bits && (protocol === ANCHOR_PROTOCOL || isOneOf(former));
    if (isOurs && !isOneOf(wanted)) changes.push({ kind: "remove", linkIndex, ifName, address });
  }
  for (const listener of wanted) {
    const link = listener.assignAddress ? links.find(({ name }) => name === listener.interface) : undefined;
    if (link === undefined || isThere({ links, addresses }, listener)) continue;
    changes.push({ kind: "assign", linkIndex: link.index, ifName: link.name, address: listener.address });
  }
  return changes;
}

/** Returns true if the bridge has the address, whichever program assigned it. Pure. */
export function isThere({ links, addresses }: AnchorListing, anchored: Anchored): boolean {
  const nameOf = nameIn(links);
  return addresses.some(({ linkIndex, address }) => isAt(anchored, nameOf(linkIndex), address));
}

function isAt({ address, interface: bridge }: Anchored, ifName: string, other: IpAddress): boolean {
  return bridge === ifName && address.equals(other);
}

function nameIn(links: AnchorListing["links"]): (index: number) => string {
  return (index) => links.find((link) => link.index === index)?.name ?? "";
}

/** Returns true if the kernel keeps IFA_PROTO: Linux 5.18 and later set IFA_PROTO on addresses that the kernel assigns itself. Pure. */
export function keepsProtocols({ addresses }: AnchorListing): boolean {
  return addresses.some(({ protocol }) => protocol !== undefined);
}
