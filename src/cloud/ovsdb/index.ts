/**
 * The ports of Open vSwitch, through its database (RFC 7047) on a UNIX socket.
 *
 * Owns: JSON-RPC with its bounds, the transaction for a port, the wait until the switch serves it. Does not know: VPCs, network devices, flows.
 *
 * ```ts
 * const ovs: OvsSwitch = new OpenVSwitch({ clock }, { socketPath: "/var/run/openvswitch/db.sock" });
 * await ovs.addPort({ bridge: "br-int", device: "tap30b6911d-11", externalIds: { "iface-id": portId } }, { signal });
 * ```
 */
export { isOvsdbError, OvsdbError } from "./errors.ts";
export { isOvn, OpenVSwitch, type OvsBridge, type OvsPort, type OvsPortState, type OvsSwitch } from "./open-vswitch.ts";
