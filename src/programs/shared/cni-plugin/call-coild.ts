import { CniCode, CniError, type CniResult } from "#wire/cni";
import { CNI_ERROR_TYPE_URL, type CniRpcCall, decodeCniError } from "#wire/cnirpc";
import { GrpcCode, type GrpcStatus } from "#wire/grpc";

/**
 * Makes one call of the coild behind a socket; ADD resolves to its result. Throws {@link CniError}: coild's own error, 11 if coild cannot
 * be reached, 999 if its answer is malformed.
 */
export type CallCoild = (socket: string, call: CniRpcCall) => Promise<CniResult | undefined>;

/** The error for coild's gRPC status; `http` is the HTTP status, for an answer without a gRPC code. May throw `CniRpcError`. */
export function errorOf({
  code,
  message,
  details,
  http,
}: GrpcStatus & { readonly http?: string | undefined }): CniError {
  const detail = details.find((any) => any.typeUrl === CNI_ERROR_TYPE_URL);
  if (detail !== undefined) {
    const error = decodeCniError(detail.value);
    // 0 is not an error code, so an error detail with code 0 is treated as an internal error.
    return new CniError(error.code === 0 ? CniCode.internal : error.code, error.msg, { details: error.details });
  }
  const cniCode = code === GrpcCode.unavailable ? CniCode.tryAgainLater : CniCode.internal;
  const shown = Number.isNaN(code) ? `HTTP status ${http ?? "none"} and no gRPC status` : `gRPC status ${code}`;
  return new CniError(cniCode, message === "" ? `coild answered with ${shown}` : message);
}
