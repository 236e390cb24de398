import { type CloudError, isCloudError } from "#cloud/rest";
import { ProviderError, type ProviderReason, type Retry } from "../errors.ts";

interface Row {
  readonly reason: ProviderReason;
  readonly retry: Retry;
}

/** The meanings of errors, by the `type` of `NeutronError` (docs/spec/vpc-nics.md#6.4). */
const BY_TYPE: Readonly<Record<string, Row>> = {
  IpAddressAlreadyAllocated: { reason: "IpInUse", retry: "slow" },
  IpAddressInUse: { reason: "IpInUse", retry: "slow" },
  MacAddressInUse: { reason: "MacInUse", retry: "slow" },
  IpAddressGenerationFailure: { reason: "SubnetFull", retry: "slow" },
  OverQuota: { reason: "ProviderQuota", retry: "slow" },
  InvalidIpForSubnet: { reason: "IpNotInSubnet", retry: "never" },
  InvalidIpForNetwork: { reason: "IpNotInSubnet", retry: "never" },
  HTTPBadRequest: { reason: "BadRequest", retry: "never" },
  NetworkNotFound: { reason: "VpcNotFound", retry: "slow" },
  SubnetNotFound: { reason: "SubnetNotFound", retry: "slow" },
  SecurityGroupNotFound: { reason: "SecurityGroupNotFound", retry: "slow" },
  PortNotFound: { reason: "PortNotFound", retry: "slow" },
  RevisionNumberConstraintFailed: { reason: "PortChanged", retry: "at-once" },
  PolicyNotAuthorized: { reason: "Unauthorized", retry: "slow" },
  ServicePortInUse: { reason: "DeleteConflict", retry: "slow" },
  PortInUse: { reason: "DeleteConflict", retry: "slow" },
  PortInUseAsTrunkParent: { reason: "DeleteConflict", retry: "slow" },
  PortInUseAsSubPort: { reason: "DeleteConflict", retry: "slow" },
};

/** Explains a failed request to Neutron. Pure. */
export function explainFault(error: CloudError): Row {
  const row = error.type === undefined ? undefined : BY_TYPE[error.type];
  if (row !== undefined && Object.hasOwn(BY_TYPE, error.type ?? "")) return row;
  switch (error.code) {
    case "unavailable":
    case "unreachable":
    case "timeout":
    case "circuit-open":
    case "bad-response":
      return { reason: "ProviderUnavailable", retry: "fast" };
    case "unauthorized":
      return { reason: "AuthFailed", retry: "slow" };
    case "forbidden":
      return { reason: "Unauthorized", retry: "slow" };
    case "over-limit":
      return { reason: "ProviderQuota", retry: "slow" };
    case "precondition":
      return { reason: "PortChanged", retry: "at-once" };
    case "conflict":
      return { reason: "DeleteConflict", retry: "slow" };
    case "not-found":
      // Neutron's own 404 has a type. Of anything between us and it the ports are not gone.
      return error.type === undefined
        ? { reason: "ProviderUnavailable", retry: "slow" }
        : { reason: "PortNotFound", retry: "slow" };
    case "invalid":
      return { reason: "BadRequest", retry: "never" };
  }
}

/** The {@link ProviderError} of a {@link CloudError}; any other error as it is. */
export function translate(error: unknown): unknown {
  if (!isCloudError(error)) return error;
  const { reason, retry } = explainFault(error);
  return ProviderError.of(error, reason, retry);
}
