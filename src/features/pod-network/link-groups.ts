import { createHash } from "node:crypto";
import type { Link } from "#kernel/link";

/**
 * Groups of host links (IFLA_GROUP). The lower 24 bits name the network (CNI specification, key `name`) that a link was made for,
 * so that a GC of one network does not change the links of other networks; 0 if the network is not known, as for links that Coil has made.
 * The upper eight bits say whether the link is cut off. The groups of deletions (0x49) are `kernel/link`'s.
 */
const ATTACHED = 0x4b00_0000;
const CUT_OFF = 0x4a00_0000;
const NETWORK_BITS = 0xff_ffff;

/** The first and the last group of attachments, and of those that are cut off. */
export const LINK_GROUPS = {
  attached: [ATTACHED, ATTACHED | NETWORK_BITS],
  cutOff: [CUT_OFF, CUT_OFF | NETWORK_BITS],
} as const;

/** The group of a link of this network. The groups of two networks are equal with a probability of one in 2^24. */
export function groupOfNetwork(network: string | undefined): number {
  if (network === undefined || network === "") return 0;
  return ATTACHED | Math.max(1, createHash("sha1").update(network).digest().readUIntBE(0, 3));
}

/** True when the link was made for this network. */
export function isOfNetwork({ group }: Pick<Link, "group">, network: string): boolean {
  const isOurs = (group & ~NETWORK_BITS) === ATTACHED || (group & ~NETWORK_BITS) === CUT_OFF;
  return isOurs && (group & NETWORK_BITS) === (groupOfNetwork(network) & NETWORK_BITS);
}

/** True when the link has a group of {@link cutOffGroup}. */
export function isMarkedCutOff({ group }: Pick<Link, "group">): boolean {
  return (group & ~NETWORK_BITS) === CUT_OFF;
}

/** The link's group while it is cut off; the group still names the network. A group that another program set is lost. */
export function cutOffGroup({ group }: Pick<Link, "group">): number {
  return CUT_OFF | ((group & ~NETWORK_BITS) === ATTACHED ? group & NETWORK_BITS : 0);
}

/** The link's group after it was connected again. */
export function joinedGroup({ group }: Pick<Link, "group">): number {
  const network = group & NETWORK_BITS;
  return network === 0 ? 0 : ATTACHED | network;
}
