export { addRule, firstStep, hasTraces, syncNet } from "./apply.ts";
export type { NetPlan, NetScope, PlannedLink, PlannedRoute, PlannedRule } from "./types.ts";
