import * as v from "valibot";
import { keystoneFault } from "#cloud/keystone";
import { type CloudError, isCloudError } from "#cloud/rest";

/** Why Neutron refuses, in the words of claims (docs/spec/vpc-nics.md#12). */
export const NEUTRON_REASONS = [
  "IpInUse",
  "MacInUse",
  "SubnetFull",
  "ProviderQuota",
  "IpNotInSubnet",
  "BadRequest",
  "VpcNotFound",
  "SubnetNotFound",
  "SecurityGroupNotFound",
  "PortNotFound",
  "PortChanged",
  "Unauthorized",
  "AuthFailed",
  "DeleteConflict",
  "ProviderUnavailable",
] as const;
export type NeutronReason = (typeof NEUTRON_REASONS)[number];

/**
 * When a request can succeed: `never` before its content changes, `slow` after somebody else has done something, `fast` when the server is
 * well again, `at-once` after a new look.
 */
export type Retry = "never" | "slow" | "fast" | "at-once";

interface Row {
  readonly reason: NeutronReason;
  readonly retry: Retry;
}

/** By the `type` of `NeutronError` (docs/spec/vpc-nics.md#6.4). */
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

/** What a failed request means. Pure. */
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
      return { reason: "PortNotFound", retry: "slow" };
    case "invalid":
      return { reason: "BadRequest", retry: "never" };
  }
}

/** True for a request that Neutron refused with one of these types. */
export function isNeutronFault(error: unknown, ...types: readonly string[]): error is CloudError {
  return isCloudError(error) && error.type !== undefined && types.includes(error.type);
}

const neutronErrorSchema = v.object({
  NeutronError: v.union([
    v.object({ type: v.optional(v.string()), message: v.optional(v.string()), detail: v.optional(v.unknown()) }),
    v.string(),
  ]),
});

/** What the body of a refusal says: `{"NeutronError": …}`, and `{"error": …}` of a token that is not accepted. */
export function neutronFault(body: unknown): { readonly type?: string; readonly message?: string } {
  const result = v.safeParse(neutronErrorSchema, body);
  if (!result.success) return keystoneFault(body);
  const fault = result.output.NeutronError;
  if (typeof fault === "string") return { message: fault };
  const { type, message } = fault;
  return { ...(type === undefined ? {} : { type }), ...(message === undefined ? {} : { message }) };
}
