import { ExpectedError } from "#base/errors";

/**
 * - `netns-not-found`: the path of the pod's network namespace does not exist.
 * - `own-netns`: the path is that of the node's own network namespace.
 * - `interface-exists`: the pod has an interface of that name that we did not make.
 * - `address-in-use`: the host routes an address to another link.
 * - `check-failed`: CHECK found something missing.
 */
export type PodNetworkErrorCode =
  | "netns-not-found"
  | "own-netns"
  | "interface-exists"
  | "address-in-use"
  | "check-failed";

/** An attachment cannot be made, or is not as it should be. A failed set-up leaves nothing behind. */
export class PodNetworkError extends ExpectedError<PodNetworkErrorCode> {
  override readonly name = "PodNetworkError";
}
