import type { Schema } from "./schema.ts";

const META = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/** A list of texts that is replaced as a whole. */
const TEXTS: Schema = { type: "array", items: { type: "string" }, "x-kubernetes-list-type": "atomic" };

/** Kinds, by definition name, that the package of the other definitions lacks, or has only in part, because it is older. */
export const NEWER_SCHEMAS: Readonly<Record<string, Schema>> = {
  // The package leaves out the members that Go embeds: resources and scope.
  "io.k8s.api.admissionregistration.v1.RuleWithOperations": {
    type: "object",
    description: "RuleWithOperations is a tuple of Operations and Resources.",
    properties: {
      apiGroups: TEXTS,
      apiVersions: TEXTS,
      operations: TEXTS,
      resources: TEXTS,
      scope: { type: "string" },
    },
  },
  "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations": {
    type: "object",
    description: "NamedRuleWithOperations is a tuple of Operations and Resources with ResourceNames.",
    properties: {
      apiGroups: TEXTS,
      apiVersions: TEXTS,
      operations: TEXTS,
      resourceNames: TEXTS,
      resources: TEXTS,
      scope: { type: "string" },
    },
  },
  "io.k8s.api.networking.v1.ServiceCIDRSpec": {
    type: "object",
    description: "ServiceCIDRSpec define the CIDRs the user wants to use for allocating ClusterIPs for Services.",
    properties: {
      cidrs: {
        type: "array",
        description:
          "CIDRs defines the IP blocks in CIDR notation from which to assign service cluster IPs. Max of two, one of each IP family.",
        items: { type: "string" },
        "x-kubernetes-list-type": "atomic",
        maxItems: 2,
      },
    },
  },
  "io.k8s.api.networking.v1.ServiceCIDRStatus": {
    type: "object",
    description: "ServiceCIDRStatus describes the current state of the ServiceCIDR.",
    properties: {
      conditions: {
        type: "array",
        items: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
        "x-kubernetes-list-type": "atomic",
      },
    },
  },
  "io.k8s.api.networking.v1.ServiceCIDR": {
    type: "object",
    description:
      "ServiceCIDR defines a range of IP addresses using CIDR format, from which Services' addresses are allocated.",
    properties: {
      apiVersion: { type: "string" },
      kind: { type: "string" },
      metadata: { $ref: META },
      spec: { $ref: "#/definitions/io.k8s.api.networking.v1.ServiceCIDRSpec" },
      status: { $ref: "#/definitions/io.k8s.api.networking.v1.ServiceCIDRStatus" },
    },
  },
};
