import { ExpectedError } from "#base/errors";

/** `not-found`: the servers say that there is no such name, or no address of it. `failed`: no server gave an answer. `denied`: all
 * answers were ones that policy forbids. */
export type DnsErrorCode = "not-found" | "failed" | "denied";

/** A name could not be resolved. The message is for people, without the name. */
export class DnsError extends ExpectedError<DnsErrorCode> {
  override readonly name = "DnsError";
}
