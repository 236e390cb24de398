import type { Shape } from "#kube/shape";

const METADATA: Shape = {
  fields: {
    name: "name",
    namespace: "name",
    labels: { map: "string" },
    annotations: { map: "string" },
    creationTimestamp: "string",
  },
  required: ["name", "namespace"],
};

const TEXTS: Shape = { list: "string" };

/** Types of the fields that are read of a Service. A Service with another type counts as absent; bad values are skipped later. */
export const SERVICE_SHAPE: Shape = {
  fields: {
    metadata: METADATA,
    spec: {
      fields: {
        type: "string",
        clusterIP: "string",
        clusterIPs: TEXTS,
        externalIPs: TEXTS,
        loadBalancerSourceRanges: TEXTS,
        ipFamilies: TEXTS,
        externalTrafficPolicy: "string",
        internalTrafficPolicy: "string",
        sessionAffinity: "string",
        sessionAffinityConfig: { fields: { clientIP: { fields: { timeoutSeconds: "number" } } } },
        healthCheckNodePort: "number",
        ports: { list: { fields: { name: "ascii", protocol: "string", port: "number", nodePort: "number" } } },
      },
    },
    status: {
      fields: {
        loadBalancer: { fields: { ingress: { list: { fields: { ip: "string", ipMode: "string" } } } } },
      },
    },
  },
  required: ["metadata", "spec"],
};

const HINTS: Shape = { list: { fields: { name: "string" }, required: ["name"] } };

/** Types of the fields that are read of an EndpointSlice. */
export const SLICE_SHAPE: Shape = {
  fields: {
    metadata: METADATA,
    addressType: "string",
    ports: { list: { fields: { name: "string", protocol: "string", port: "number" } } },
    endpoints: {
      list: {
        fields: {
          addresses: TEXTS,
          conditions: { fields: { ready: "boolean", serving: "boolean", terminating: "boolean" } },
          nodeName: "string",
          hints: { fields: { forZones: HINTS, forNodes: HINTS } },
        },
      },
    },
  },
  required: ["metadata", "addressType"],
};
