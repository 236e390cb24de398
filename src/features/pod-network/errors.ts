import { ExpectedError } from "#base/errors";

/**
 * - `netns-not-found`: the path of the pod's network namespace leads nowhere.
 * - `interface-exists`: the pod has an interface of that name which is not ours.
 * - `check-failed`: CHECK found something missing.
 */
export type PodNetworkErrorCode = "netns-not-found" | "interface-exists" | "check-failed";

/** An attachment cannot be made, or is not as it should be. Nothing of it is left behind by a failed set-up. */
export class PodNetworkError extends ExpectedError<PodNetworkErrorCode> {
  override readonly name = "PodNetworkError";
}
