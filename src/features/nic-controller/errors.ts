import { ExpectedError } from "#base/errors";

/**
 * - `not-leading`: this process may not be the leader any more, so it asks nothing of a provider.
 * - `unknown-provider`: a claim or policy names a provider that does not exist, or cannot be opened.
 */
export type NicControllerErrorCode = "not-leading" | "unknown-provider";

/** Thrown where no request to a provider may be made. */
export class NicControllerError extends ExpectedError<NicControllerErrorCode> {
  override readonly name = "NicControllerError";
}

/** The error of what only a leader may do. */
export function notLeading(): NicControllerError {
  return new NicControllerError("not-leading", "the Lease was not renewed in time, so another process may lead");
}
