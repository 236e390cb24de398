import { ExpectedError } from "#base/errors";

/**
 * `no-such-object`: of those that the question names; `no-address`: the object has none in the family that is needed; `not-permitted`: it may not
 * be read.
 */
export type ExplainErrorCode = "no-such-object" | "no-address" | "not-permitted";

/** The question names something that the cluster does not have. */
export class ExplainError extends ExpectedError<ExplainErrorCode> {
  override readonly name = "ExplainError";
}
