/**
 * Reports about NICs of VPCs for operators: the comparison of pods, NicClaims, ports and nodes (`isthmus audit`), the state of pods (`nicctl status`),
 * their story (`nicctl trace`), the way of a pod's NICs (`isthmus explain`), and what is wrong with a cloud or a node (`nicctl doctor`,
 * `isthmus doctor`).
 *
 * Owns: kinds of findings, the form of what a node tells, judgements and texts. Changes nothing. Does not know: how a node or a cloud is asked, the
 * rules of webhooks and controller ({@link NicAuditRules}).
 *
 * ```ts
 * const { findings } = auditNics({ pods, claims, nodes, ports, clusterId, hostOf, now }, rules);
 * ```
 */
export type { NicAudit, NicCoverage } from "./audit/audit.ts";
export { auditNics } from "./audit/audit.ts";
export { auditNicCluster, clusterOf, type PortSource } from "./audit/cluster.ts";
export { decodeNicNode } from "./audit/codec.ts";
export { NIC_FINDINGS, type NicFinding } from "./audit/finding.ts";
export type { NicAuditRules } from "./audit/rules.ts";
export type { NicNode } from "./audit/state.ts";
export {
  judgeAgents,
  judgeClaims,
  judgeClusterId,
  judgeLease,
  judgePolicy,
  judgeWebhooks,
  runsNicAgent,
  type WebhookConfiguration,
} from "./doctor/cluster.ts";
export { judgeNode } from "./doctor/node.ts";
export { judgeHosts, judgeProvider, type ProviderReport } from "./doctor/provider.ts";
export { explainNics, explainNicsText, type NicRouting } from "./explain/explain.ts";
export { nicRows, nicRowsText, tableText } from "./status/rows.ts";
export { tracePod, traceText } from "./status/trace.ts";
