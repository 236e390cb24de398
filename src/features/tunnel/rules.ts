/** The rules of `--agent-identity`, read from files. */
export { type NodeClaims, RuleGate } from "./identity/agent-gate.ts";
export { AgentRulesError } from "./identity/errors.ts";
export type { AgentRule } from "./identity/rule.ts";
export { readAgentRules, ruleFiles } from "./identity/rule-file.ts";
