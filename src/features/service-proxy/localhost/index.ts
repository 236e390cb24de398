/**
 * NodePorts of TCP at 127.0.0.1 and ::1 (KEP-6032), without route_localnet: a listener of this process for each, which relays to the Service's cluster IP,
 * so that the rules decide as for any client on the node. Opt-in (docs/spec/service-proxy.md#2.10).
 *
 * Owns: which ports there are, listeners, relays. Does not know: the API, tables.
 */
export { LocalNodePorts } from "./local-node-ports.ts";
export { localNodePorts } from "./plan.ts";
