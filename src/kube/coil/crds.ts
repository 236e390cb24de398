import { type CrdManifest, crd, labelColumn } from "#kube/crd";
import {
  addressBlockSchema,
  addressPoolSpecSchema,
  blockRequestSpecSchema,
  blockRequestStatusSchema,
  coilResources,
  egressSpecSchema,
  egressStatusSchema,
} from "./types.ts";

/** The CRDs of `coil.cybozu.com/v2`, in the order in which they should be created. */
export const coilCrds: readonly CrdManifest[] = [
  crd({
    type: coilResources.addressPools,
    description: "AddressPool is a pool of addresses that blocks are carved from.",
    properties: { spec: addressPoolSpecSchema },
    required: ["spec"],
    columns: [{ name: "BlockSize Bits", type: "integer", jsonPath: ".spec.blockSizeBits" }],
  }),
  crd({
    type: coilResources.addressBlocks,
    description: "AddressBlock is a block of addresses that belongs to a node.",
    properties: addressBlockSchema.properties ?? {},
    required: addressBlockSchema.required ?? [],
    rules: addressBlockSchema["x-kubernetes-validations"],
    columns: [
      labelColumn("Node", "coil.cybozu.com/node"),
      labelColumn("Pool", "coil.cybozu.com/pool"),
      { name: "IPv4", type: "string", jsonPath: ".ipv4" },
      { name: "IPv6", type: "string", jsonPath: ".ipv6" },
    ],
  }),
  crd({
    type: coilResources.blockRequests,
    description: "BlockRequest is a node's request for a block of a pool.",
    properties: { spec: blockRequestSpecSchema, status: blockRequestStatusSchema },
    required: ["spec"],
    subresources: { status: {} },
  }),
  crd({
    type: coilResources.egresses,
    description: "Egress is a set of NAT gateways for pods that ask for them.",
    properties: { spec: egressSpecSchema, status: egressStatusSchema },
    required: [],
    subresources: {
      status: {},
      scale: {
        specReplicasPath: ".spec.replicas",
        statusReplicasPath: ".status.replicas",
        labelSelectorPath: ".status.selector",
      },
    },
  }),
];
