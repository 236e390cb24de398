export { addRule, firstStep, hasTraces, syncNet } from "./apply.ts";
export {
  EGRESS_PROTOCOL,
  type NetPlan,
  type NetScope,
  type PlannedLink,
  type PlannedRoute,
  type PlannedRule,
} from "./types.ts";
