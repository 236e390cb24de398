import { ExpectedError } from "#base/errors";

export type Http2ErrorCode = "malformed" | "too-large" | "refused";

/** The peer broke the protocol, sent a larger answer than is accepted, or reset the stream. */
export class Http2Error extends ExpectedError<Http2ErrorCode> {
  override readonly name = "Http2Error";
}
