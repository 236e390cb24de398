export { clientOf } from "./clients.ts";
export { endFlows, foreignFlows, formerClients } from "./flows.ts";
export { CLIENT_TABLE, isRouter, planRouter, type RouterPod, routerScope } from "./plan.ts";
export { type ListedRouterRule, planRules, type RuleBackend, routerRules } from "./rules.ts";
