import { ExpectedError } from "#base/errors";

/**
 * - `failed`: refused, reset or not permitted, by the peer or by the kernel.
 * - `timeout`: no answer in time.
 */
export type InsideErrorCode = "failed" | "timeout";

/** A connection or a request failed. The message names both ends and the reason. */
export class InsideError extends ExpectedError<InsideErrorCode> {
  override readonly name = "InsideError";
}
