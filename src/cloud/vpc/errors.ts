import { ExpectedError } from "#base/errors";
import type { CloudError } from "#cloud/rest";

/** The reasons why a provider cannot satisfy a request, as claims name them (docs/spec/vpc-nics.md#12). */
export const PROVIDER_REASONS = [
  "VpcNotFound",
  "SubnetNotFound",
  "SecurityGroupNotFound",
  "AmbiguousVpc",
  "AmbiguousSubnet",
  "AmbiguousSecurityGroup",
  "IpInUse",
  "MacInUse",
  "SubnetFull",
  "ProviderQuota",
  "IpNotInSubnet",
  "IpIsGateway",
  "NoAddress",
  "BadRequest",
  "PortNotFound",
  "PortChanged",
  "BindingFailed",
  "DeleteConflict",
  "ProviderUnavailable",
  "AuthFailed",
  "Unauthorized",
] as const;
export type ProviderReason = (typeof PROVIDER_REASONS)[number];

/**
 * When a request can succeed: `never` before its content changes, `slow` after somebody else has done something, `fast` when the provider is
 * well again, `at-once` after a new look.
 */
export type Retry = "never" | "slow" | "fast" | "at-once";

/** More about a {@link ProviderError}. */
export interface ProviderErrorInit {
  readonly retry: Retry;
  /** True if the provider may have done what was asked all the same. */
  readonly isAmbiguous?: boolean;
  readonly httpStatus?: number | undefined;
  /** The provider's own name of the fault. */
  readonly providerType?: string | undefined;
  readonly requestId?: string | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A request that a provider of VPCs refuses or does not answer; its code is the reason that the NIC's status shows. */
export class ProviderError extends ExpectedError<ProviderReason> {
  override readonly name = "ProviderError";
  readonly retry: Retry;
  readonly isAmbiguous: boolean;
  readonly httpStatus: number | undefined;
  readonly providerType: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(reason: ProviderReason, message: string, init: ProviderErrorInit) {
    super(reason, message, "cause" in init ? { cause: init.cause } : {});
    this.retry = init.retry;
    this.isAmbiguous = init.isAmbiguous ?? false;
    this.httpStatus = init.httpStatus;
    this.providerType = init.providerType;
    this.requestId = init.requestId;
    this.retryAfterMs = init.retryAfterMs;
  }

  /** The error of a failed request to a cloud, with what it means. */
  static of(error: CloudError, reason: ProviderReason, retry: Retry): ProviderError {
    return new ProviderError(reason, error.message, {
      retry,
      isAmbiguous: error.isAmbiguous,
      httpStatus: error.httpStatus,
      providerType: error.type,
      requestId: error.requestId,
      retryAfterMs: error.retryAfterMs,
      cause: error,
    });
  }
}
