/** The API group of this suite's own kinds, labels and annotations: the G of docs/spec/vpc-nics.md. */
export const API_GROUP = "isthmus.dev";
/** The version of the kinds of VPC NICs. */
export const NIC_VERSION = "v1alpha1";

/** Annotation of a Pod: the name or id of its VPC. */
export const VPC_ANNOTATION = `${API_GROUP}/vpc`;
/** Annotation of a Pod: its NICs, a list in JSON or YAML. */
export const NICS_ANNOTATION = `${API_GROUP}/nics`;
/** Annotation of a Pod that is a virtual machine: the machine, an object in JSON or YAML. */
export const VM_ANNOTATION = `${API_GROUP}/vm`;
/** The annotations that Arktos' kubelet writes for a VPC and its NICs; they are read as those of ours. */
export const LEGACY_VPC_ANNOTATION = "VPC";
export const LEGACY_NICS_ANNOTATION = "NICs";

/** Annotation of a Pod that the controller writes: the state of its NICs. */
export const NIC_STATUS_ANNOTATION = `${API_GROUP}/nic-status`;
/** Annotation of a Pod that the controller writes: the name of its NicClaim. */
export const CLAIM_ANNOTATION = `${API_GROUP}/claim`;
/** Condition of a Pod: whether all its NICs are ready. It can be a readiness gate. */
export const NICS_READY = `${API_GROUP}/NicsReady`;

/** Scheduling gate of a Pod: its ports do not exist yet. */
export const NICS_GATE = `${API_GROUP}/nics`;

/** Annotation of a Namespace: the VPC of pods that have NICs and name no VPC. */
export const DEFAULT_VPC_ANNOTATION = `${API_GROUP}/default-vpc`;
/** Label of a Namespace; with `"true"`, it admits only pods with a VPC. */
export const REQUIRE_VPC_LABEL = `${API_GROUP}/require-vpc`;
/** Label of a Namespace whose pods are refused while the webhook is away; pods of others are then not reviewed. */
export const ENABLED_LABEL = `${API_GROUP}/enabled`;
/** Label of what belongs to a tenant of Arktos. */
export const TENANT_LABEL = `${API_GROUP}/tenant`;

/** Label of a NicClaim: the name of its Pod. */
export const CLAIM_POD_LABEL = `${API_GROUP}/pod`;
/** Label of a NicClaim: its node; absent until its Pod is scheduled. */
export const CLAIM_NODE_LABEL = `${API_GROUP}/node`;
/** Label of a NicClaim: the id of the cluster. */
export const CLAIM_CLUSTER_LABEL = `${API_GROUP}/cluster`;
/** Finalizer of a NicClaim: it has ports that are not released yet. */
export const PORTS_FINALIZER = `${API_GROUP}/ports`;
/** Annotation of a Node: the name of its host at the VPC's provider. Default: the name of the Node. */
export const PROVIDER_HOST_ANNOTATION = `${API_GROUP}/provider-host`;

/** The name of the one NicPolicy of a cluster. */
export const NIC_POLICY_NAME = "default";
/** The most NICs that a pod can have, whatever the policy. */
export const MAX_NICS = 32;
/** The most security groups that a NIC can name. */
export const MAX_SECURITY_GROUPS = 100;
