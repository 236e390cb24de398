import { ExpectedError } from "#base/errors";

/** `refused`: iptables ended with an error, which the message has. `missing`: there are rules of a variant, and no program of it. */
export type ForwardPassErrorCode = "refused" | "missing";

/** Rules of the chain FORWARD cannot be read or written. */
export class ForwardPassError extends ExpectedError<ForwardPassErrorCode> {
  override readonly name = "ForwardPassError";
}
