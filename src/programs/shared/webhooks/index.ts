/**
 * The webhooks of a controller program: their server, certificate, health and metrics.
 *
 * Owns: the names of the webhook objects, which are Coil's for its kinds. Does not know: the rules (`kube/coil`, `features/nic`).
 *
 * ```ts
 * const egress = { part: "egress", type: coilResources.egresses, context: () => async () => ({}) };
 * serveWebhooks(replica, [{ ...egress, address: values.webhookAddr }], values);
 * ```
 */
export { webhookMetrics } from "./metrics.ts";
export { NIC_NAMES, serveWebhooks, WEBHOOK_NAMES, type Webhooks, webhookAddrFlag, webhookFlags } from "./webhooks.ts";
