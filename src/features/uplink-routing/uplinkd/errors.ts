import { ExpectedError } from "#base/errors";

/** `partial`: some parts of the kernel could not be brought to what is wanted; the others were. */
export type UplinkdErrorCode = "partial";

/** Some parts of a pass failed; `cause` has every part's error. */
export class UplinkdError extends ExpectedError<UplinkdErrorCode> {
  override readonly name = "UplinkdError";
}
