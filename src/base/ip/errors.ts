import { ExpectedError } from "#base/errors";

/** Describes the expected text. */
export type IpParseErrorCode = "invalid-address" | "invalid-cidr" | "invalid-mac";

/** Text or bytes are not of the expected kind. The message quotes them and names the fault. */
export class IpParseError extends ExpectedError<IpParseErrorCode> {
  override readonly name = "IpParseError";
}
