/**
 * Listening sockets that come up sooner or later (spec uplink-proxy 4).
 *
 * Owns: binding, trying again, saying so. Refuses to know: what is said to clients.
 *
 * ```ts
 * const loop = new BindLoop(listener, { log, clock, onClient }, { backlog: 511, reusePort: false });
 * await loop.run({ signal });
 * ```
 */
export { BindLoop, type BindLoopDeps, type BindLoopOptions } from "./bind-loop.ts";
