import type { Node } from "#kube/client";

/** The cluster autoscaler's taint on a node that it is about to delete (KEP-3836). */
export const AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler";

/** The fields of a Node that decide whether load balancers may use it. */
export interface NodeView {
  /** `metadata.deletionTimestamp` is set. */
  readonly isDeleting: boolean;
  /** Keys of all taints, with any value and effect. */
  readonly taintKeys: readonly string[];
}

/**
 * Reads the fields that decide. No other field drains a node: not cordoning, not readiness, no other taints or labels
 * (docs/spec/service-proxy.md#1.3). Pure.
 */
export function nodeView({ metadata, spec }: Pick<Node, "metadata" | "spec">): NodeView {
  const deletedAt = metadata.deletionTimestamp;
  return {
    isDeleting: deletedAt !== undefined && deletedAt !== null && deletedAt !== "",
    taintKeys: (spec?.taints ?? []).map(({ key }) => key),
  };
}

/** False if the node is being deleted or drained. Pure. */
export function isEligible(view: NodeView, drainingTaintKeys: readonly string[]): boolean {
  return !view.isDeleting && !view.taintKeys.some((key) => drainingTaintKeys.includes(key));
}
