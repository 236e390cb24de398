/**
 * The controller of address management as a part of a program: its flags, its metrics, its leader's work, its webhooks.
 *
 * Owns: the wiring of `features/ipam` to informers. Does not know: which programs run it.
 *
 * ```ts
 * runController({ name, values, signal }, [ipamLeader(values)], (replica) => serveWebhooks(replica, [{ ...POOL_WEBHOOKS, address }], values));
 * ```
 */
export { ipamFlags, ipamLeader, POOL_WEBHOOKS } from "./control.ts";
export { poolMetrics } from "./metrics.ts";
