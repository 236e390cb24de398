/**
 * The controller of Egresses as a part of a program: its flags, its leader's work, its webhooks, the image of routers.
 *
 * Owns: the wiring of `features/egress-controller` to informers. Does not know: which programs run it.
 *
 * ```ts
 * const { leader, webhooks } = egressController(values);
 * runController({ name, values, signal }, [leader], (replica) => serveWebhooks(replica, [{ ...webhooks, address }], values));
 * ```
 */
export { egressController, egressFlags } from "./control.ts";
