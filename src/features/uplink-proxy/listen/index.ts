/**
 * Listening sockets that come up sooner or later (docs/spec/uplink-proxy.md#4).
 *
 * Owns: binding, trying again, saying so. Refuses to know: what is said to clients.
 *
 * ```ts
 * const listeners = new ListenerSet({ log, clock, onClient, spawn }, { backlog: () => 511, isShared: () => false });
 * listeners.sync(settings.listeners);
 * ```
 */
export { BindLoop, type BindLoopDeps, type BindLoopOptions } from "./bind-loop.ts";
export { ListenerSet, type ListenerSetDeps, type ListenerSetOptions } from "./listener-set.ts";
