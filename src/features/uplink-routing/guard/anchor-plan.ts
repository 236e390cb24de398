import type { IpAddress } from "#base/ip";
import type { ListenerSettings } from "#base/uplink-model";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";

/** The protocol of addresses that we put on bridges (IFA_PROTO): tells ours from those that were there before. */
export const ANCHOR_PROTOCOL = 0x49;

/** What of a pod listener says where its address belongs. */
export type Anchored = Pick<ListenerSettings, "address" | "interface" | "assignAddress">;

/** An address that is to come to its bridge, or to leave it. */
export interface AnchorChange {
  readonly kind: "assign" | "remove";
  readonly linkIndex: number;
  readonly ifName: string;
  readonly address: IpAddress;
}

/** What of the kernel anchors depend on. */
export interface AnchorListing {
  readonly links: readonly Pick<Link, "index" | "name">[];
  readonly addresses: readonly Pick<Address, "linkIndex" | "address" | "prefixLength" | "protocol">[];
}

/**
 * The changes that bring the wanted anchors to their bridges, as a /32 or /128, and take ours away that nobody wants any more (spec
 * uplink-proxy 12). An address that is there already is left to whoever set it, and a bridge that is missing is waited for. `former` are
 * those known to be ours where the kernel cannot tell. Pure.
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

/** Whether the address is on the bridge, whoever set it. Pure. */
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

/** Whether the kernel keeps who set an address: Linux 5.18 and later say it of the addresses that they make themselves. Pure. */
export function keepsProtocols({ addresses }: AnchorListing): boolean {
  return addresses.some(({ protocol }) => protocol !== undefined);
}
