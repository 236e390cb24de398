import { ExpectedError } from "#base/errors";

/** `partial`: some parts of the kernel's state could not be changed to the wanted state; the others were. */
export type UplinkdErrorCode = "partial";

/** Some parts of a pass failed; `cause` has every part's error. */
export class UplinkdError extends ExpectedError<UplinkdErrorCode> {
  override readonly name = "UplinkdError";
}
