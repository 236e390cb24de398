import { ExpectedError } from "#base/errors";

/**
 * - `not-ours`: an object of another owner has the name of a lab's object, or the lab would change it; the message names it and the fix.
 * - `in-use`: another lab is on the cluster; the message names it and the fix.
 * - `right-missing`: the credentials lack rights that a lab needs; the message names each right.
 * - `not-removed`: objects of the lab are still on the cluster; the message names them.
 */
export type OwnershipErrorCode = "not-ours" | "in-use" | "right-missing" | "not-removed";

/** A lab cannot be a guest on a cluster, or cannot remove its objects. */
export class OwnershipError extends ExpectedError<OwnershipErrorCode> {
  override readonly name = "OwnershipError";
}
