/**
 * A daemon as a list of parts (docs/design/node.md): the furniture that all daemons with a client of the API server share, in one order.
 *
 * Owns: {@link defineDaemon}, starting and ending parts, the events and the record of passes of a daemon, its served mark. Does not know: any daemon's task.
 *
 * ```ts
 * export const coilRouter = defineDaemon({
 *   name: "coil-router", summary, flags, estate, environment: requireNodeName, privileges,
 *   open: ({ use }) => openNode(use),
 *   parts: (kit, node) => [{ name: "routes", run: ({ signal }) => syncRoutes(node, { signal }) }],
 * });
 * ```
 */
export { type DaemonKit, type DaemonStart, defineDaemon } from "./define-daemon.ts";
export { type Part, startParts } from "./part.ts";
export { openRecording } from "./recording.ts";
export { servedMarkPart } from "./served-mark-part.ts";
