/**
 * The sockets that daemons of this node serve beside the usual ones. CNI executables run as root with a configuration that a tenant may have written
 * (Multus), so they connect to these alone (docs/security.md).
 *
 * Owns: the folder of marks, which only root can write. Does not know: who calls, and what for.
 *
 * ```ts
 * markServed("/run/other/coild.sock", { kind: "coild" }); // the daemon
 * isServed("/run/other/coild.sock", { kind: "coild" }); // the executable: true
 * ```
 */
export { canonicalSocket, isServed, markServed, SERVED_SOCKETS, servedSockets } from "./served-sockets.ts";
