import type { IpAddress } from "#base/ip";

/** One interface of one container: what owns an address. */
export interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** The addresses of an attachment: the same offset of a block in each of its families. */
export interface Assignment {
  readonly pool: string;
  /** Empty: in no block of this node that is known. */
  readonly block: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** An attachment found in the kernel. */
export interface Restored extends Attachment {
  readonly pool: string;
  /** None: they cannot be read. */
  readonly addresses: readonly IpAddress[];
  /** Of the host's link: the highest is the most recent. */
  readonly ifindex: number;
  /** Of the host's link. */
  readonly hostName?: string | undefined;
}

/** An attachment whose block is not this node's any more. */
export interface LostAttachment extends Attachment {
  /** The block that it was of; `undefined`: not known, for this process began after the block had gone. */
  readonly block: string | undefined;
  readonly addresses: readonly IpAddress[];
}

/** A link that has addresses of the pod network, and is no attachment that we know. */
export interface UnownedLink {
  readonly ifindex: number;
  readonly hostName?: string | undefined;
  /** None: they cannot be read. */
  readonly addresses: readonly IpAddress[];
}
