import { ExpectedError } from "#base/errors";

/** `bad-answer`: this is not the state of a node's NICs. */
export type NicReportErrorCode = "bad-answer";

/** Thrown if the answer of a node about its NICs cannot be read. */
export class NicReportError extends ExpectedError<NicReportErrorCode> {
  override readonly name = "NicReportError";
}
