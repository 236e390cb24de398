import type * as CoreV1 from "kubernetes-types/core/v1.js";
import { type ResourceType, resourceType, type StoredMeta } from "#kube/client";
import { array, boolean, int32, intOrString, map, object, oneOf, opaque, type Static, string } from "#kube/crd";
import { COIL_GROUP, COIL_VERSION, MAX_LABEL_VALUE_LENGTH } from "./keys.ts";
import { labelSelectorSchema } from "./label-selector.ts";
import {
  APPEND_ONLY,
  COUNT_OR_PERCENT,
  FAMILY,
  HOLDS_A_BLOCK,
  MAX_CIDR_LENGTH,
  MAX_PERCENT_LENGTH,
  MAX_SUBNETS,
  ONE_SIDE,
  SUBNET,
  UNCHANGEABLE,
  unchangeableMember,
} from "./rules.ts";

function subnet(family: "ipv4" | "ipv6", description: string) {
  const rules = [FAMILY[family]];
  return string({ description, format: "cidr", maxLength: MAX_CIDR_LENGTH, "x-kubernetes-validations": rules });
}

const subnetSetSchema = object(
  { ipv4: subnet("ipv4", "An IPv4 CIDR."), ipv6: subnet("ipv6", "An IPv6 CIDR.") },
  {
    description: "An IPv4 subnet, an IPv6 subnet, or both. At least one of the two must be given.",
    "x-kubernetes-validations": SUBNET,
  },
);

/** `spec` of an AddressPool (docs/spec/pod-network.md#2.2). */
export const addressPoolSpecSchema = object(
  {
    blockSizeBits: int32({
      description: "A block holds 2^n addresses. Cannot be changed. Default: 5.",
      default: 5,
      minimum: 0,
      "x-kubernetes-validations": [UNCHANGEABLE],
    }),
    subnets: array(subnetSetSchema, {
      description:
        "The subnets that blocks are carved from, in this order. Subnets can be appended, not changed or removed.",
      minItems: 1,
      maxItems: MAX_SUBNETS,
      "x-kubernetes-validations": APPEND_ONLY,
    }),
  },
  {
    description: "The wanted state of the pool.",
    required: ["subnets"],
    "x-kubernetes-validations": [HOLDS_A_BLOCK],
  },
);

/** The fields of an AddressBlock beside its metadata (docs/spec/pod-network.md#2.3). */
export const addressBlockSchema = object(
  {
    index: int32({
      description: "The number of the block within its pool, from 0.",
      minimum: 0,
      "x-kubernetes-validations": [UNCHANGEABLE],
    }),
    ipv4: string({ description: "The block's IPv4 CIDR.", format: "cidr" }),
    ipv6: string({ description: "The block's IPv6 CIDR.", format: "cidr" }),
  },
  { required: ["index"], "x-kubernetes-validations": [unchangeableMember("ipv4"), unchangeableMember("ipv6")] },
);

/** `spec` of a BlockRequest (docs/spec/pod-network.md#2.4). */
export const blockRequestSpecSchema = object(
  {
    nodeName: string({ description: "The node that requests the block." }),
    poolName: string({ description: "The pool that the block should come from." }),
  },
  {
    description: "The requested block. Cannot be changed.",
    required: ["nodeName", "poolName"],
    "x-kubernetes-validations": [UNCHANGEABLE],
  },
);

const blockRequestConditionSchema = object(
  {
    type: oneOf(["Complete", "Failed"], { description: "The type of the condition." }),
    status: oneOf(["True", "False", "Unknown"], { description: "Whether the condition is true." }),
    lastProbeTime: string({ description: "When the condition was last checked.", format: "date-time" }),
    lastTransitionTime: string({ description: "When the status last changed.", format: "date-time" }),
    reason: string({ description: "The reason of the status, in one or two words." }),
    message: string({ description: "The reason of the status, as a sentence." }),
  },
  { required: ["type", "status"] },
);

/** `status` of a BlockRequest (docs/spec/pod-network.md#2.4). */
export const blockRequestStatusSchema = object(
  {
    addressBlockName: string({ description: "The name of the AddressBlock that was created for the request." }),
    conditions: array(blockRequestConditionSchema, {
      description: "Present after the controller has answered the request.",
    }),
  },
  { description: "The answer of the controller." },
);

const DECIMAL = "(0|[1-9][0-9]{0,2})";
const QUAD = `${DECIMAL}([.]${DECIMAL}){3}`;
/** The format `cidr` of API servers takes leading zeros too, which some programs read as octal and none of ours takes. */
const PLAIN_CIDR = `^(${QUAD}|[0-9A-Fa-f:]*:([0-9A-Fa-f]*|${QUAD}))/${DECIMAL}$`;
/** The pattern of label values in apimachinery. */
const LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

function budget(description: string) {
  return intOrString({
    description,
    maxLength: MAX_PERCENT_LENGTH,
    "x-kubernetes-validations": [COUNT_OR_PERCENT],
  });
}

const egressTemplateSchema = object(
  {
    metadata: object(
      {
        annotations: map(string(), { description: "Added to the labels or annotations of the router pods." }),
        labels: map(string({ maxLength: MAX_LABEL_VALUE_LENGTH, pattern: LABEL_VALUE }), {
          description: "Added to the router pods.",
        }),
      },
      { description: "Metadata of the router pods." },
    ),
    spec: opaque<Partial<CoreV1.PodSpec>>({
      description: "The PodSpec of the router pods. The container named egress is the router.",
    }),
  },
  { description: "Changes to the router pods." },
);

/** The maximum number of names of `spec.allowedNamespaces`. */
export const MAX_ALLOWED_NAMES = 1000;
/** The maximum number of entries of `spec.clients`. */
export const MAX_CLIENT_ENTRIES = 16;
/** The maximum length of the name of a Namespace. */
const MAX_NAMESPACE_LENGTH = 63;

const allowedNamespacesSchema = object(
  {
    names: array(string({ maxLength: MAX_NAMESPACE_LENGTH }), {
      description: "Names of namespaces.",
      maxItems: MAX_ALLOWED_NAMES,
    }),
    selector: labelSelectorSchema("Selects namespaces by their labels. An empty selector selects all."),
  },
  {
    description:
      "The namespaces whose pods may use this egress, by annotation or by clients: those that are named, those that are selected, and always the egress's own. Absent: all namespaces. Empty: its own alone.",
  },
);

const clientsSchema = array(
  object({
    namespaceSelector: labelSelectorSchema(
      "Selects the namespaces of the pods. Absent: the egress's own namespace. Another namespace takes part only if its annotation isthmus.dev/egress-clients-of names this egress.",
    ),
    podSelector: labelSelectorSchema("Selects pods by their labels. Absent or empty: all pods of these namespaces."),
  }),
  {
    description:
      "Selects pods that use this egress without an annotation; a pod that matches one entry is a client. Pods that name egresses in annotations can be selected too.",
    maxItems: MAX_CLIENT_ENTRIES,
  },
);

/** `spec` of an Egress (docs/spec/pod-network.md#2.5). */
export const egressSpecSchema = object(
  {
    destinations: array(string({ format: "cidr", pattern: PLAIN_CIDR }), {
      description: "CIDRs that are reached through this egress.",
      minItems: 1,
    }),
    allowedNamespaces: allowedNamespacesSchema,
    clients: clientsSchema,
    replicas: int32({ description: "The number of router pods. Default: 1.", default: 1, minimum: 1 }),
    strategy: object(
      {
        type: oneOf(["", "Recreate", "RollingUpdate"], { description: "Recreate or RollingUpdate." }),
        rollingUpdate: object({
          maxSurge: intOrString({ description: "The maximum number of pods above replicas, or a percentage." }),
          maxUnavailable: intOrString({ description: "The maximum number of unavailable pods, or a percentage." }),
        }),
      },
      { description: "How router pods are replaced; as in a Deployment." },
    ),
    template: egressTemplateSchema,
    sessionAffinity: oneOf(["ClientIP", "None"], {
      description: "Whether all connections of a client use the same router pod. Default: ClientIP.",
      default: "ClientIP",
    }),
    sessionAffinityConfig: object(
      {
        clientIP: object({
          timeoutSeconds: int32({
            description: "The time for which a client uses the same router pod, seconds.",
            minimum: 1,
            maximum: 86400,
          }),
        }),
      },
      { description: "Passed on to the Service." },
    ),
    fouSourcePortAuto: boolean({
      description: "Whether the UDP source port of the tunnel is chosen for each flow. Default: false.",
      default: false,
    }),
    addresses: array(subnetSetSchema, {
      description:
        "The source addresses of the router pods, from the ranges of coil-egress-controller's --egress-address-range. Entries can be appended, not changed or removed; all can be removed together. Default: addresses of the namespace's pool.",
      minItems: 1,
      maxItems: MAX_SUBNETS,
      "x-kubernetes-validations": APPEND_ONLY,
    }),
    originatingOnly: boolean({
      description:
        "Whether answers of connections that came in from elsewhere leave by the way by which those came, and not through the Egress. Default: as coild's --enable-originating-only.",
    }),
    podDisruptionBudget: object(
      {
        minAvailable: budget("The minimum number of available router pods, or a percentage."),
        maxUnavailable: budget("The maximum number of unavailable router pods, or a percentage."),
      },
      {
        description: "If set, a PodDisruptionBudget is created for the router pods.",
        "x-kubernetes-validations": [ONE_SIDE],
      },
    ),
  },
  { description: "The wanted state of the egress.", required: ["destinations"] },
);

/** `status` of an Egress (docs/spec/pod-network.md#2.5). */
export const egressStatusSchema = object(
  {
    replicas: int32({ description: "The number of available router pods." }),
    selector: string({ description: "The selector of the router pods." }),
    clients: int32({ description: "The number of pods that use the egress, by annotation or by spec.clients." }),
    refusedClients: int32({
      description:
        "The number of pods that name the egress, or that spec.clients selects, and that may not use it: allowedNamespaces does not allow their namespace, or their namespace does not consent.",
    }),
  },
  { description: "The observed state of the egress." },
);

interface CoilObject<K extends string> {
  apiVersion?: "coil.cybozu.com/v2";
  kind?: K;
  metadata: StoredMeta;
}

/** One entry of a pool's subnets: CIDR texts of at least one family. */
export type SubnetSet = Static<typeof subnetSetSchema>;
/** `spec` of an AddressPool. */
export type AddressPoolSpec = Static<typeof addressPoolSpecSchema>;
/** A pool of addresses: cluster-scoped, without status. */
export interface AddressPool extends CoilObject<"AddressPool"> {
  /** Absent only if an older schema allowed the object without it. */
  spec?: AddressPoolSpec;
}

/** A block of addresses that belongs to a node: cluster-scoped, fields at the top. */
export type AddressBlock = CoilObject<"AddressBlock"> & Static<typeof addressBlockSchema>;

/** `spec` of a BlockRequest. */
export type BlockRequestSpec = Static<typeof blockRequestSpecSchema>;
/** One condition of a BlockRequest. */
export type BlockRequestCondition = Static<typeof blockRequestConditionSchema>;
/** `status` of a BlockRequest. */
export type BlockRequestStatus = Static<typeof blockRequestStatusSchema>;
/** A node's request for a block of a pool: cluster-scoped. */
export interface BlockRequest extends CoilObject<"BlockRequest"> {
  /** Absent only if an older schema allowed the object without it. */
  spec?: BlockRequestSpec;
  status?: BlockRequestStatus;
}

/** `spec` of an Egress. */
export type EgressSpec = Static<typeof egressSpecSchema>;
/** One entry of `spec.clients` of an Egress. */
export type ClientEntry = Static<typeof clientsSchema>[number];
/** The pod template of an Egress. */
export type EgressPodTemplate = Static<typeof egressTemplateSchema>;
/** `status` of an Egress. */
export type EgressStatus = Static<typeof egressStatusSchema>;
/** NAT gateways for pods that ask for them: namespaced. */
export interface Egress extends CoilObject<"Egress"> {
  /** May be absent: the CRD, as Coil's, does not require it. Only the webhook refuses such an Egress. */
  spec?: EgressSpec;
  status?: EgressStatus;
}
/** An Egress that has a spec. */
export interface SpecifiedEgress extends Egress {
  spec: EgressSpec;
}

const v2 = { group: COIL_GROUP, version: COIL_VERSION };

/** The resource types of `coil.cybozu.com/v2`. */
export const coilResources: {
  readonly addressPools: ResourceType<AddressPool>;
  readonly addressBlocks: ResourceType<AddressBlock>;
  readonly blockRequests: ResourceType<BlockRequest>;
  readonly egresses: ResourceType<Egress>;
} = Object.freeze({
  addressPools: resourceType<AddressPool>({ ...v2, kind: "AddressPool", plural: "addresspools", namespaced: false }),
  addressBlocks: resourceType<AddressBlock>({
    ...v2,
    kind: "AddressBlock",
    plural: "addressblocks",
    namespaced: false,
  }),
  blockRequests: resourceType<BlockRequest>({
    ...v2,
    kind: "BlockRequest",
    plural: "blockrequests",
    namespaced: false,
  }),
  egresses: resourceType<Egress>({ ...v2, kind: "Egress", plural: "egresses", namespaced: true }),
});
