import { describeError, ExpectedError } from "#base/errors";
import { CniCode } from "#wire/cni";
import { type CniErrorDetail, cniErrorAny, cniErrorOf } from "#wire/cnirpc";
import { GrpcCode, type GrpcStatus } from "#wire/grpc";

/** The kinds of failure of a call, by the codes that the runtime sees (docs/spec/vpc-nics.md#7, #8). */
export type NicCallErrorCode =
  | "invalid-arguments"
  | "invalid-config"
  | "no-sandbox"
  | "try-again"
  | "not-available"
  | "nic-failed"
  | "no-bridge"
  | "differs"
  | "no-vpc"
  | "collision"
  | "internal";

const CODES: Readonly<Record<NicCallErrorCode, { readonly grpc: number; readonly cni: number }>> = {
  "invalid-arguments": { grpc: GrpcCode.invalidArgument, cni: CniCode.invalidEnvironment },
  "invalid-config": { grpc: GrpcCode.failedPrecondition, cni: CniCode.invalidConfig },
  "no-sandbox": { grpc: GrpcCode.notFound, cni: CniCode.unknownContainer },
  "try-again": { grpc: GrpcCode.failedPrecondition, cni: CniCode.tryAgainLater },
  "not-available": { grpc: GrpcCode.failedPrecondition, cni: CniCode.notAvailable },
  "nic-failed": { grpc: GrpcCode.failedPrecondition, cni: CniCode.nicFailed },
  "no-bridge": { grpc: GrpcCode.failedPrecondition, cni: CniCode.noIntegrationBridge },
  differs: { grpc: GrpcCode.failedPrecondition, cni: CniCode.differs },
  "no-vpc": { grpc: GrpcCode.notFound, cni: CniCode.noVpc },
  collision: { grpc: GrpcCode.failedPrecondition, cni: CniCode.nameCollision },
  internal: { grpc: GrpcCode.internal, cni: CniCode.internal },
};

/** A failure of a call that is returned to the runtime. */
export class NicCallError extends ExpectedError<NicCallErrorCode> {
  override readonly name = "NicCallError";

  /** The error that the CNI executable prints. */
  get detail(): CniErrorDetail {
    return cniErrorOf(this, CODES[this.code].cni);
  }

  /** The gRPC status, with exactly one `CNIError` detail. */
  get status(): GrpcStatus {
    return { code: CODES[this.code].grpc, message: this.message, details: [cniErrorAny(this.detail)] };
  }
}

/**
 * The failure of a call. An expected error without a kind is `internal`, an abort of the signal is `try-again`; any other error is a bug and stays as it is.
 */
export function callFailure(
  error: unknown,
  {
    signal,
    kindOf,
  }: { readonly signal: AbortSignal; readonly kindOf: (error: unknown) => NicCallErrorCode | undefined },
): unknown {
  if (error instanceof NicCallError) return error;
  if (signal.aborted && error === signal.reason)
    return new NicCallError("try-again", `the call was cancelled: ${describeError(error)}`, { cause: error });
  if (!(error instanceof ExpectedError || error instanceof AggregateError)) return error;
  return new NicCallError(kindOf(error) ?? "internal", describeError(error), { cause: error });
}
