import { type CrdManifest, crd, labelColumn } from "#kube/crd";
import { CLAIM_NODE_LABEL, CLAIM_POD_LABEL, NIC_POLICY_NAME } from "./keys.ts";
import { nicClaimSpecSchema, nicClaimStatusSchema, nicPolicySpecSchema } from "./schemas.ts";
import { nicResources } from "./types.ts";

/** The CRDs of VPC NICs. */
export const nicCrds: readonly CrdManifest[] = [
  crd({
    type: nicResources.nicClaims,
    description: "NicClaim is the record of the ports of one pod.",
    properties: { spec: nicClaimSpecSchema, status: nicClaimStatusSchema },
    required: ["spec"],
    columns: [
      labelColumn("Pod", CLAIM_POD_LABEL),
      labelColumn("Node", CLAIM_NODE_LABEL),
      { name: "VPC", type: "string", jsonPath: ".spec.vpc" },
      { name: "Phase", type: "string", jsonPath: ".status.phase" },
      { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
    ],
    subresources: { status: {} },
  }),
  crd({
    type: nicResources.nicPolicies,
    description: "NicPolicy has the limits, providers and VPC bindings of a cluster.",
    properties: { spec: nicPolicySpecSchema },
    required: [],
    rules: [
      {
        rule: `self.metadata.name == '${NIC_POLICY_NAME}'`,
        message: `the only NicPolicy of a cluster is named ${NIC_POLICY_NAME}`,
      },
    ],
  }),
];
