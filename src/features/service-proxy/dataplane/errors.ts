import { ExpectedError } from "#base/errors";

/** `unsupported`: the kernel, or libnftables, refuses something that the rules of Services are made of. */
export type DataPlaneErrorCode = "unsupported";

/** Thrown by `checkConstructs`. */
export class DataPlaneError extends ExpectedError<DataPlaneErrorCode> {
  override readonly name = "DataPlaneError";
}
