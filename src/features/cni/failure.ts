import { ExpectedError } from "#base/errors";
import { CniCode } from "#wire/cni";
import { type CniErrorDetail, cniErrorAny, cniErrorOf } from "#wire/cnirpc";
import { GrpcCode, type GrpcStatus } from "#wire/grpc";

/** The kinds of failure of a call, in the terms of the required error mapping (docs/spec/pod-network.md#4.2). */
export type CniFailureKind =
  | "invalid-arguments"
  | "unknown-pod"
  | "invalid-config"
  | "try-again"
  | "not-ready"
  | "not-available"
  | "limited-connectivity"
  | "internal";

const CODES: Readonly<Record<CniFailureKind, { readonly grpc: number; readonly cni: number }>> = {
  "invalid-arguments": { grpc: GrpcCode.invalidArgument, cni: CniCode.invalidEnvironment },
  "unknown-pod": { grpc: GrpcCode.notFound, cni: CniCode.unknownContainer },
  "invalid-config": { grpc: GrpcCode.failedPrecondition, cni: CniCode.invalidConfig },
  "try-again": { grpc: GrpcCode.failedPrecondition, cni: CniCode.tryAgainLater },
  "not-ready": { grpc: GrpcCode.unavailable, cni: CniCode.tryAgainLater },
  "not-available": { grpc: GrpcCode.failedPrecondition, cni: CniCode.notAvailable },
  "limited-connectivity": { grpc: GrpcCode.failedPrecondition, cni: CniCode.limitedConnectivity },
  internal: { grpc: GrpcCode.internal, cni: CniCode.internal },
};

/** A failure of a call that is returned to the runtime. */
export class CniFailure extends ExpectedError<CniFailureKind> {
  override readonly name = "CniFailure";

  /** The error that the caller's CNI executable prints. */
  get detail(): CniErrorDetail {
    return cniErrorOf(this, CODES[this.code].cni);
  }

  /** The gRPC status, with exactly one `CNIError` detail. */
  get status(): GrpcStatus {
    return { code: CODES[this.code].grpc, message: this.message, details: [cniErrorAny(this.detail)] };
  }
}
