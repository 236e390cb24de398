/**
 * Transparent mode: connections that the kernel has redirected to a listener (docs/spec/uplink-proxy.md#14).
 *
 * Owns: the destination of such a connection, and the name that its client speaks to. Does not know: the redirection, tunnels. The engine alone imports it, in one line, so it can
 * be removed whole.
 *
 * ```ts
 * await new TransparentConnection(client, listener, tunnelService, { clock }).run();
 * ```
 */
export { TransparentConnection } from "./transparent-connection.ts";
