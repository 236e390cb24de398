export { clientOf } from "./clients.ts";
export { endFlows, formerClients } from "./flows.ts";
export { isRouter, planRouter, type RouterPod, routerScope } from "./plan.ts";
export { planRules, type RuleBackend, routerRules } from "./rules.ts";
