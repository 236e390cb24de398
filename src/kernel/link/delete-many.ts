import { randomInt } from "node:crypto";
import type { AbortOptions } from "#base/async";
import { isKernelError, KernelError } from "#kernel/errors";
import type { NetlinkConnection } from "#kernel/netlink";
import { DELETION_GROUPS } from "./constants.ts";
import { deletion, deletionOfGroup, joiningGroup } from "./encode.ts";
import type { DeletableLink } from "./types.ts";

/** The maximum number of links of one call; the kernel's lock of all networking (RTNL) is held for some 0.25 ms for each. */
export const MAX_DELETE_MANY = 128;

/**
 * {@link LinkPort.deleteMany} by link groups. RTM_DELLINK with IFLA_GROUP (net/core/rtnetlink.c, rtnl_group_dellink)
 * unregisters all links of a group in the connection's namespace at once, so they share one wait for readers; if it refuses, it has not
 * removed any link. One datagram has the requests that put the links into a group and delete the group, which the kernel handles in order,
 * so the caller's thread waits for nothing and the group has members for a few milliseconds at most.
 *
 * - A link that vanished is refused when it should join the group (ENODEV; an index is not given out again until all 2^31 were), and
 *   is reported. A link that vanishes after joining is deleted, as wanted. A rename changes nothing, the index stays. A link
 *   that moves to another namespace in between keeps its group there, where that group is never deleted.
 * - If this process is killed after the datagram was sent, the kernel finishes it. There is no moment between joining and
 *   going at which a process of ours has to act, so links are left in a group only when the kernel refuses to delete it;
 *   they continue to work, and are listed by their alias as before, until the next attempt.
 * - Each call draws a number of {@link DELETION_GROUPS}, so links that are left are removed by their own next deletion and not by
 *   another one, whose caller would not know which addresses became free. A repeated number (1 in 16 million)
 *   would only remove links that must be deleted anyway.
 */
export async function deleteTogether(
  connection: NetlinkConnection,
  links: readonly DeletableLink[],
  options: AbortOptions,
): Promise<ReadonlyMap<number, KernelError>> {
  options.signal?.throwIfAborted();
  if (links.length > MAX_DELETE_MANY) {
    throw new KernelError("invalid", `Cannot delete ${links.length} links at once: the maximum is ${MAX_DELETE_MANY}`);
  }
  const failures = new Map<number, KernelError>();
  // The kernel would refuse the whole group, and the link would stay in it.
  for (const { index, kind } of links) if (kind === undefined) failures.set(index, undeletable(index));
  const indexes = [...new Set(links.map(({ index }) => index))].filter((index) => !failures.has(index));
  const group = DELETION_GROUPS.first + randomInt(DELETION_GROUPS.count);
  const requests =
    indexes.length > 1
      ? [...indexes.map((index) => joiningGroup(index, group)), deletionOfGroup(group)]
      : indexes.map(deletion);
  if (requests.length === 0) return failures;
  const outcomes = await connection.changeAllAsync(requests, options);
  for (const [at, index] of indexes.entries()) {
    const failure = outcomes[at];
    if (failure !== undefined) failures.set(index, failure);
  }
  // If every link has vanished, no link is in the group.
  const ofGroup = outcomes[indexes.length];
  if (ofGroup !== undefined && !isKernelError(ofGroup, "no-device")) throw ofGroup;
  return failures;
}

function undeletable(index: number): KernelError {
  return new KernelError("unsupported", `Cannot delete link ${index}: it has no kind, so it is a device of the host`, {
    errno: "EOPNOTSUPP",
  });
}
