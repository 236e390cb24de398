/**
 * The control socket: an agent on this host lists the uplinks and reports their failures (docs/spec/uplink-proxy.md#2.2).
 *
 * Owns: the socket's requests, answers and limits. Does not know: the effects of a failure.
 *
 * ```ts
 * await using control = await serveControl({ uplinks, reportStatus, log }, { path: "/run/uplink-proxy/control.sock" });
 * ```
 */
export { serveControl } from "./control.ts";
export { parseStatus, StatusError } from "./status.ts";
