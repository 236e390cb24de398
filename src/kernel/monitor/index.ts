/**
 * Kernel events: links, addresses, routes, rules and forwarding of a namespace as they change.
 *
 * Owns: {@link Monitors} and its sockets. Does not know: the reaction to a change; usually it marks something dirty.
 *
 * ```ts
 * await using monitors = new Monitors({ onFailure: (error) => log.error("monitor", { error }) });
 * await using watch = monitors.watch(netns, { routes: true }, () => dirty.mark("route"));
 * ```
 */
export { decodeEvents, Monitors } from "./monitors.ts";
export type { MonitorEvent } from "./types.ts";
