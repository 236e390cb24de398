import { ExpectedError } from "#base/errors";

export type GrpcWireErrorCode = "malformed" | "too-large" | "compressed";

/** A message or status that does not follow the protocol. */
export class GrpcWireError extends ExpectedError<GrpcWireErrorCode> {
  override readonly name = "GrpcWireError";
}
