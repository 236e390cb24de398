/**
 * Reports of the whole suite for operators: its status in a cluster (`isthmus status`), and what is wrong with a node or a cluster
 * (`isthmus doctor`).
 *
 * Owns: the programs and their endpoints by command line, the reading of their answers, the model and text of the status, the table of faults and
 * their judgement. Changes nothing. Does not know: how API server, programs and kernel are asked.
 *
 * ```ts
 * process.stdout.write(suiteStatusText(suiteStatus(facts)));
 * ```
 */
export { parseExposition } from "./answers/exposition.ts";
export { isOurReadiness, parseReadiness } from "./answers/readiness.ts";
export { judgeSuiteCluster } from "./doctor/cluster.ts";
export { type ClusterFacts, nodeAddresses, type WebhookFacts } from "./doctor/cluster-facts.ts";
export { readyEndpoints } from "./doctor/cluster-objects.ts";
export { FAULTS, type FaultCheck } from "./doctor/faults.ts";
export type { NodeMarks } from "./doctor/mark-checks.ts";
export { judgeSuiteNode } from "./doctor/node.ts";
export { DAEMONS, hasPodNetwork } from "./doctor/node-cni.ts";
export type { CniFile, CrowdedRouter, InputFinding, NodeFacts } from "./doctor/node-facts.ts";
export { neededPorts } from "./doctor/node-packets.ts";
export { neededRights } from "./doctor/rights.ts";
export type { ForwardFinding } from "./forward-drops.ts";
export { type LeftOver, leftOvers, type MarkFacts, type ProgramClaims, sharedMarks } from "./marks.ts";
export { enforcersOf, type PolicyFacts } from "./policies.ts";
export {
  BUNDLE,
  type EndpointPlace,
  endpointsOf,
  flagOf,
  POD_NAMES,
  SUITE_PROGRAMS,
  type SuiteCommand,
  suiteCommands,
} from "./programs.ts";
export {
  type Instance,
  type InstanceAnswer,
  instanceKey,
  instancesOf,
  nodeView,
  type Objects,
  type SuiteFacts,
} from "./status/facts.ts";
export { STATUS_METRICS, suiteStatus } from "./status/model.ts";
export { suiteStatusText } from "./status/text.ts";
