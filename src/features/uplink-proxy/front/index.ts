/**
 * The front end for clients (docs/spec/uplink-proxy.md#5, #9.3, #13): HTTP heads, answers, and the tunnels that follow.
 *
 * Owns: a connection from its first byte to the end of its tunnel, limits, replays over another uplink. Does not know: listening, where
 * snapshots come from, threads.
 *
 * ```ts
 * const tunnelService = new TunnelService(deps);
 * new HttpConnection(socket, listener, { ...deps, tunnelService }).start();
 * ```
 */

export { connectionWords, staysOpen } from "./connection-words.ts";
export { Descriptors } from "./descriptors.ts";
export { failureReply, overloadReply, refusalReply } from "./dispatch.ts";
export { EarlyPayload } from "./early-payload.ts";
export { HttpConnection } from "./http-connection.ts";
export type { HttpConnectionDeps } from "./http-connection-deps.ts";
export { PendingHeads } from "./pending-heads.ts";
export type { ForwardDeps, Forwarded, ForwardRequest, PlainHttp, PlainTarget } from "./plain-http.ts";
export { errorReply, type Reply } from "./replies.ts";
export { TunnelLimiter, type TunnelLimiterMemory } from "./tunnel-limiter.ts";
export { TunnelService } from "./tunnel-service.ts";
