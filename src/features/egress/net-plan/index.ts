export { addRule, firstStep, hasTraces, observeNet, syncNet } from "./apply.ts";
export { diffNet, type NetChange, type ObservedNet, type ObservedRoute } from "./diff.ts";
export {
  EGRESS_PROTOCOL,
  type NetPlan,
  type NetScope,
  type PlannedLink,
  type PlannedRoute,
  type PlannedRule,
} from "./types.ts";
