import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CLOUD_ERROR_CODES, CloudError, type CloudErrorCode } from "#cloud/rest";
import { ProviderError, type ProviderReason, type Retry } from "../errors.ts";
import { explainFault, translate } from "./faults.ts";

describe("explainFault (T-9)", () => {
  const rows: readonly (readonly [
    code: CloudErrorCode,
    type: string | undefined,
    reason: ProviderReason,
    retry: Retry,
  ])[] = [
    ["conflict", "IpAddressAlreadyAllocated", "IpInUse", "slow"],
    ["conflict", "MacAddressInUse", "MacInUse", "slow"],
    ["conflict", "IpAddressGenerationFailure", "SubnetFull", "slow"],
    ["conflict", "OverQuota", "ProviderQuota", "slow"],
    ["invalid", "InvalidIpForSubnet", "IpNotInSubnet", "never"],
    ["invalid", "InvalidIpForNetwork", "IpNotInSubnet", "never"],
    ["invalid", "HTTPBadRequest", "BadRequest", "never"],
    ["not-found", "NetworkNotFound", "VpcNotFound", "slow"],
    ["not-found", "SubnetNotFound", "SubnetNotFound", "slow"],
    ["not-found", "SecurityGroupNotFound", "SecurityGroupNotFound", "slow"],
    ["not-found", "PortNotFound", "PortNotFound", "slow"],
    // Of a gateway before Neutron: nothing is gone.
    ["not-found", undefined, "ProviderUnavailable", "slow"],
    ["precondition", "RevisionNumberConstraintFailed", "PortChanged", "at-once"],
    ["forbidden", "PolicyNotAuthorized", "Unauthorized", "slow"],
    ["conflict", "ServicePortInUse", "DeleteConflict", "slow"],
    ["unauthorized", undefined, "AuthFailed", "slow"],
    ["over-limit", undefined, "ProviderQuota", "slow"],
    ["unavailable", undefined, "ProviderUnavailable", "fast"],
    ["unreachable", undefined, "ProviderUnavailable", "fast"],
    ["timeout", undefined, "ProviderUnavailable", "fast"],
    ["circuit-open", undefined, "ProviderUnavailable", "fast"],
    ["bad-response", undefined, "ProviderUnavailable", "fast"],
    ["invalid", "SomethingNew", "BadRequest", "never"],
    ["conflict", "toString", "DeleteConflict", "slow"],
  ];
  for (const [code, type, reason, retry] of rows)
    test(`${code} ${type ?? "without a type"} is ${reason}, retried ${retry}`, () => {
      assert.deepEqual(explainFault(new CloudError(code, "", { type })), { reason, retry });
    });

  test("each code without a type has a row", () => {
    for (const code of CLOUD_ERROR_CODES) assert.ok(explainFault(new CloudError(code, "")).reason);
  });
});

test("translate: what the cloud said goes along, and no other error is touched", () => {
  const init = { httpStatus: 409, type: "MacAddressInUse", requestId: "req-1", retryAfterMs: 5 };
  const error = translate(new CloudError("conflict", "Cannot create", init));
  assert.ok(error instanceof ProviderError);
  const { code, message, providerType, requestId, retryAfterMs, isAmbiguous } = error;
  assert.deepEqual(
    [code, message, providerType, requestId, retryAfterMs, isAmbiguous],
    ["MacInUse", "Cannot create", "MacAddressInUse", "req-1", 5, false],
  );
  assert.ok((translate(new CloudError("timeout", "")) as ProviderError).isAmbiguous);
  const bug = new TypeError("a bug");
  assert.equal(translate(bug), bug);
});
