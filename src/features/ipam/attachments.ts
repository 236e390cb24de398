import type { IpAddress } from "#base/ip";

/** One interface of one container. It owns addresses. */
export interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** The addresses of an attachment: the same offset of a block in each of its families. */
export interface Assignment {
  readonly pool: string;
  /** The name of the block; empty if the addresses are in no known block of this node. */
  readonly block: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** An attachment found in the kernel. */
export interface RestoredAttachment extends Attachment {
  readonly pool: string;
  /** The addresses; empty if they cannot be read. */
  readonly addresses: readonly IpAddress[];
  /** The ifindex of the host's link; the attachment with the highest ifindex is the most recent. */
  readonly ifindex: number;
  /** The name of the host's link. */
  readonly hostName?: string | undefined;
}

/** An attachment whose block does not belong to this node any more. */
export interface LostAttachment extends Attachment {
  /** Its former block; `undefined`: not known, because this process started after the block had been deleted. */
  readonly block: string | undefined;
  readonly addresses: readonly IpAddress[];
}

/** A link with addresses of the pod network that belongs to no known attachment. */
export interface UnownedLink {
  readonly ifindex: number;
  readonly hostName?: string | undefined;
  /** The addresses; an empty list means that they cannot be read. */
  readonly addresses: readonly IpAddress[];
}
