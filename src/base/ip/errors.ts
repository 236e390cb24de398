import { ExpectedError } from "#base/errors";

/** What a text was meant to be. */
export type IpParseErrorCode = "invalid-address" | "invalid-cidr" | "invalid-range" | "invalid-mac";

/** Text or bytes that are not what they were parsed as. The message quotes them and says what is wrong. */
export class IpParseError extends ExpectedError<IpParseErrorCode> {
  override readonly name = "IpParseError";
}
