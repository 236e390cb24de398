import { ExpectedError } from "#base/errors";

/**
 * - `owned`: a table under our name is another program's, which alone may change it (nftables' flag `owner`)
 * - `unsupported`: the kernel, or libnftables, refuses something that the rules of Services are made of
 */
export type DataPlaneErrorCode = "owned" | "unsupported";

/** Thrown by `checkConstructs` and {@link DataPlane}. */
export class DataPlaneError extends ExpectedError<DataPlaneErrorCode> {
  override readonly name = "DataPlaneError";
}
