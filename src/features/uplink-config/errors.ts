import { ExpectedError } from "#base/errors";

/**
 * - `unreadable`: the file is missing, too large, or cannot be read
 * - `invalid`: the file is malformed; the message names every fault
 */
export type UplinkConfigErrorCode = "unreadable" | "invalid";

/** A configuration cannot be used. The earlier configuration stays in force. */
export class UplinkConfigError extends ExpectedError<UplinkConfigErrorCode> {
  override readonly name = "UplinkConfigError";
}
