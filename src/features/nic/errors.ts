import { ExpectedError } from "#base/errors";

/** `invalid-hand-over`: arguments of a VM runtime that do not name NICs. `not-ready`: NICs without what a guest needs. */
export type NicErrorCode = "invalid-hand-over" | "not-ready";

/** Thrown by the hand-over to VM runtimes. */
export class NicError extends ExpectedError<NicErrorCode> {
  override readonly name = "NicError";
}
