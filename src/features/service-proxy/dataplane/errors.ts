import { ExpectedError } from "#base/errors";

/**
 * - `owned`: another program owns the table of our name, and only that program may change it (nftables' flag `owner`)
 * - `unsupported`: the kernel, or libnftables, refuses an object that the rules of Services need
 */
export type DataPlaneErrorCode = "owned" | "unsupported";

/** Thrown by `checkConstructs` and {@link DataPlane}. */
export class DataPlaneError extends ExpectedError<DataPlaneErrorCode> {
  override readonly name = "DataPlaneError";
}
