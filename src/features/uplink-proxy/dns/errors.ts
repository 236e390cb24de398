import { ExpectedError } from "#base/errors";

/**
 * `not-found`: the servers say that there is no such name, or that it has no address. `server-error`: a server answered, but told neither
 * an address nor a denial. `failed`: no server answered. `denied`: policy forbids all answers.
 */
export type DnsErrorCode = "not-found" | "server-error" | "failed" | "denied";

/** A name could not be resolved. The message is for people, without the name. */
export class DnsError extends ExpectedError<DnsErrorCode> {
  override readonly name = "DnsError";
}
