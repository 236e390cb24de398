import { ExpectedError } from "#base/errors";

/**
 * - `no-such-object`: an object that the question names does not exist
 * - `no-address`: the object has no address in the needed family
 * - `not-permitted`: the object may not be read
 */
export type ExplainErrorCode = "no-such-object" | "no-address" | "not-permitted";

/** Thrown if a question cannot be answered. */
export class ExplainError extends ExpectedError<ExplainErrorCode> {
  override readonly name = "ExplainError";
}
