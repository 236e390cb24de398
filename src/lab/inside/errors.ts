import { ExpectedError } from "#base/errors";

/**
 * - `failed`: refused, reset, not permitted: the other side or the kernel said no.
 * - `timeout`: nobody said anything in time.
 */
export type InsideErrorCode = "failed" | "timeout";

/** A connection or an exchange did not come about. The message says between whom, and why. */
export class InsideError extends ExpectedError<InsideErrorCode> {
  override readonly name = "InsideError";
}
