/**
 * Routes about blocks (docs/spec/pod-network.md#4.8 and #6): exported to the node's routing daemon in a table of their own, and
 * written directly to the main table if all nodes share one network.
 *
 * Owns: routes of its protocol number in its table; nothing else is touched. Does not know: where blocks come from.
 *
 * ```ts
 * const plan = planRoutes(stack.routes.list({ family: 4, table: 119, protocol: 30 }), exportRoutes(blocks, loopback, 119, 30));
 * applyRoutes(stack.routes, plan);
 * ```
 */

export { NodeRoutes } from "./node-routes.ts";
export { RouteEvents } from "./route-events.ts";
export { RouteSync } from "./route-sync.ts";
export { exportRoutes, type RouterNode, type RouterSkip } from "./wanted.ts";
