import {
  CLAIM_ANNOTATION,
  DEFAULT_VPC_ANNOTATION,
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  NIC_STATUS_ANNOTATION,
  NICS_ANNOTATION,
  type NicClaim,
  type NicPolicySpec,
  VM_ANNOTATION,
  VPC_ANNOTATION,
} from "#kube/nic";
import type { AdmissionRequest } from "#kube/webhook";
import type { PodFields } from "../fields/pod.ts";
import type { NamespaceView } from "./policy.ts";

/** The part of the cluster that admission reads, from caches. The program makes sure that the pod's own namespace is known. */
export interface NicWorld {
  /** `spec` of the NicPolicy; empty if there is none. */
  readonly policy: NicPolicySpec;
  readonly namespaces: { readonly get: (name: string) => NamespaceView | undefined };
  readonly claims: {
    readonly get: (namespace: string, name: string) => NicClaim | undefined;
    readonly values: () => Iterable<NicClaim>;
  };
}

/** The annotations that say what a pod asks for. */
export const WISH_ANNOTATIONS = [
  VPC_ANNOTATION,
  NICS_ANNOTATION,
  VM_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  LEGACY_NICS_ANNOTATION,
];
/** The annotations that only the controller writes. */
export const STATUS_ANNOTATIONS = [NIC_STATUS_ANNOTATION, CLAIM_ANNOTATION];

/** A pod of a review; API servers have checked its schema. */
export interface ReviewedPod extends PodFields {
  readonly metadata?: { readonly uid?: string; readonly annotations?: Readonly<Record<string, string>> };
}

/** The pods of a review that concerns us: of the object itself, when it is created or changed. */
export function reviewedPods({
  operation,
  object,
  oldObject,
  subResource,
}: AdmissionRequest): { readonly pod: ReviewedPod; readonly old: ReviewedPod | undefined } | undefined {
  if ((operation !== "CREATE" && operation !== "UPDATE") || object === undefined) return undefined;
  // Subresources carry other objects, or do not change the wanted state.
  if (subResource !== undefined && subResource !== "") return undefined;
  return { pod: object as ReviewedPod, old: operation === "UPDATE" ? ((oldObject ?? {}) as ReviewedPod) : undefined };
}

/** One annotation of a pod. */
export function annotationOf(pod: ReviewedPod, key: string): string | undefined {
  const { annotations } = pod.metadata ?? {};
  return annotations !== undefined && Object.hasOwn(annotations, key) ? annotations[key] : undefined;
}

/** Returns true if a change leaves everything alone that a pod's NICs follow from. */
export function hasSameWish(pod: ReviewedPod, old: ReviewedPod): boolean {
  return WISH_ANNOTATIONS.every((key) => annotationOf(pod, key) === annotationOf(old, key));
}

/** The VPC of a namespace for pods that name none. */
export function defaultVpcOf(namespace: NamespaceView | undefined): { readonly defaultVpc: string | undefined } {
  return { defaultVpc: namespace?.annotations?.[DEFAULT_VPC_ANNOTATION] };
}
