export { clientOf } from "./clients.ts";
export { iptablesRules, type RunCommand } from "./iptables-rules.ts";
export { nftRules } from "./nft-rules.ts";
export { planRouter, type RouterPod, routerScope } from "./plan.ts";
export { planRules, type RuleBackend } from "./rules.ts";
