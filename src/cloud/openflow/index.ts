/**
 * The state by which a switch forwards: the number of flows of a bridge, by OpenFlow 1.3 on the bridge's management socket.
 *
 * Owns: the few messages that it needs, their bounds. Does not know: what flows mean, who makes them.
 *
 * ```ts
 * const count = await countFlows({ clock }, "/run/openvswitch/br-int.mgmt", { signal });
 * ```
 */
export { countFlows } from "./count-flows.ts";
export { OpenFlowError, type OpenFlowErrorCode } from "./errors.ts";
