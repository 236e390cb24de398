/**
 * The remains of the suite on a node or in a cluster, and the order of their removal (docs/design/upgrade.md).
 *
 * Owns: the plans, as data, and the objects of an installation. Does not know: how a node's kernel and files are read, and how anything is
 * removed.
 *
 * ```ts
 * const plan = planNode(facts, { pods: false, restoreSettings: false });
 * for (const removal of plan.removals) print(`${removal.what}: ${removal.why}`);
 * ```
 */
export { type ClusterRemoval, planCluster, readCluster } from "./cluster-plan.ts";
export { type FileRole, type LinkRole, type NodeFacts, type NodeRemoval, type OwnFile, planNode } from "./node-plan.ts";
export { otherNumbers } from "./other-numbers.ts";
