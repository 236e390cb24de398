import { ExpectedError } from "#base/errors";

/**
 * - `absent`: there is no estate.
 * - `untrusted`: another user than the program's may have written it, or it is no regular file.
 * - `invalid`: it is not of the schema, or too large.
 * - `unreadable`, `unwritable`: the file system refused.
 */
export type EstateErrorCode = "absent" | "untrusted" | "invalid" | "unreadable" | "unwritable";

/** Thrown by the functions of this module that read or write estates. */
export class EstateError extends ExpectedError<EstateErrorCode> {
  override readonly name = "EstateError";
}
