/**
 * The parts of `nic-controller`: its flags, informers, providers, metrics and webhooks.
 *
 * Owns: the wiring of `features/nic` and `features/nic-controller` to a cluster and to clouds. Does not know: rules, states of claims.
 */
export { nicAuditRules } from "./audit-rules.ts";
export { nicInformers } from "./cluster.ts";
export { CommandProviders, readNicPolicy } from "./command-providers.ts";
export { nicLeader } from "./control.ts";
export { nicFlags } from "./flags.ts";
export { type NicMetrics, nicMetrics } from "./metrics.ts";
export type { ProviderEntry } from "./providers.ts";
export { nicRules } from "./rules.ts";
export { nicWebhookHandlers } from "./webhooks.ts";
