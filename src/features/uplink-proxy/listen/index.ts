/**
 * Listening sockets, whose bind is tried again until it succeeds (docs/spec/uplink-proxy.md#4).
 *
 * Owns: binding, retries, their log lines. Does not know: how clients are served.
 *
 * ```ts
 * const listeners = new ListenerSet({ log, clock, onClient, spawn }, { backlog: () => 511, isShared: () => false });
 * listeners.sync(settings.listeners);
 * ```
 */
export { BindLoop, type BindLoopDeps } from "./bind-loop.ts";
export { ListenerSet } from "./listener-set.ts";
