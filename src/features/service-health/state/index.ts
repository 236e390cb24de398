/**
 * The health of this node, and the text of its answers.
 *
 * Owns: {@link NodeHealth}. Does not know: HTTP, watches, what a sync is.
 */
export { familyName } from "./body.ts";
export { AUTOSCALER_TAINT, nodeView } from "./eligibility.ts";
export { type HealthCheck, NodeHealth, type NodeHealthOptions } from "./node-health.ts";
