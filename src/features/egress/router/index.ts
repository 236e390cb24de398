export { clientOf } from "./clients.ts";
export { planRouter, type RouterPod, routerScope } from "./plan.ts";
export { planRules, type RuleBackend, routerRules } from "./rules.ts";
