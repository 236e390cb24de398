export { busiestClients } from "./busiest.ts";
export {
  type Admission,
  admitClients,
  type RouterClient,
  routerClient,
  sameCandidate,
} from "./clients.ts";
export { endFlows, foreignFlows, formerClients } from "./flows.ts";
export { addressOwners, OWNER_INDEXES, type OwnerBlock, type OwnerPool, ownerBlock, ownerPool } from "./owners.ts";
export { CLIENT_TABLE, isRouter, planRouter, type RouterPod, routerScope } from "./plan.ts";
export { type ListedRouterRule, planRules, type RuleBackend, routerRules } from "./rules.ts";
