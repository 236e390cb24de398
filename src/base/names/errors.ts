import { ExpectedError } from "#base/errors";

/** `not-found`: there is no such name, or no address of it. `unavailable`: no server has answered. */
export type NamesErrorCode = "not-found" | "unavailable";

/** A name could not be resolved. The message is for people, without the name. */
export class NamesError extends ExpectedError<NamesErrorCode> {
  override readonly name = "NamesError";
}
