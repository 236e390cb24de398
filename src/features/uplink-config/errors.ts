import { ExpectedError } from "#base/errors";

/**
 * - `unreadable`: the file is not there, too large, or cannot be read
 * - `invalid`: it is malformed; the message names every fault
 */
export type UplinkConfigErrorCode = "unreadable" | "invalid";

/** A configuration that cannot be used. The one before stays in force. */
export class UplinkConfigError extends ExpectedError<UplinkConfigErrorCode> {
  override readonly name = "UplinkConfigError";
}
