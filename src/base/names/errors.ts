import { ExpectedError } from "#base/errors";

/** `not-found`: the name does not exist or has no address. `unavailable`: no server has answered. */
export type NamesErrorCode = "not-found" | "unavailable";

/** A name could not be resolved. The message is for people, without the name. */
export class NamesError extends ExpectedError<NamesErrorCode> {
  override readonly name = "NamesError";
}
