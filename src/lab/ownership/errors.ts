import { ExpectedError } from "#base/errors";

/**
 * - `not-ours`: an object of somebody else stands where the lab's would be, or would be changed by the lab; the message names it and the fix.
 * - `in-use`: another lab is on the cluster; the message names it and the fix.
 * - `right-missing`: the credentials may not do all that a lab does; the message names each right.
 * - `not-removed`: something of the lab's is still on the cluster; the message names it.
 */
export type OwnershipErrorCode = "not-ours" | "in-use" | "right-missing" | "not-removed";

/** A lab cannot be on a cluster, or cannot leave it. */
export class OwnershipError extends ExpectedError<OwnershipErrorCode> {
  override readonly name = "OwnershipError";
}
