import { ExpectedError } from "#base/errors";

export type SocketPathErrorCode = "in-use" | "not-a-socket" | "exists" | "cannot-listen";

/** A server cannot use the path. Nothing was changed. */
export class SocketPathError extends ExpectedError<SocketPathErrorCode> {
  override readonly name = "SocketPathError";
}
