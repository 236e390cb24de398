import type { Node } from "#kube/client";

/** The cluster autoscaler's taint on a node that it is about to delete (KEP-3836). */
export const AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler";

/** What of a Node decides whether load balancers shall use it. */
export interface NodeView {
  /** `metadata.deletionTimestamp` is set. */
  readonly isDeleting: boolean;
  /** Keys, whatever the taints' values and effects. */
  readonly taintKeys: readonly string[];
}

/** Pure. All else that a Node says is no signal to drain it: cordoned, not ready, other taints, labels (docs/spec/service-proxy.md#1.3). */
export function nodeView({ metadata, spec }: Pick<Node, "metadata" | "spec">): NodeView {
  const deletedAt = metadata.deletionTimestamp;
  return {
    isDeleting: deletedAt !== undefined && deletedAt !== null && deletedAt !== "",
    taintKeys: (spec?.taints ?? []).map(({ key }) => key),
  };
}

/** Pure: true unless the node is on its way out. */
export function isEligible(view: NodeView, drainingTaintKeys: readonly string[]): boolean {
  return !view.isDeleting && !view.taintKeys.some((key) => drainingTaintKeys.includes(key));
}
