/**
 * The connections that a listener may have, by the addresses that they come from: one that opens many takes places from itself, and keeps nobody out.
 *
 * Owns: {@link Places}, for servers of requests, and {@link RequestTurns} of each of their connections; {@link Newcomers}, for clients that have not proved yet who
 * they are, or what they want. Does not know: what is served, how a client proves itself, and how long that may take.
 *
 * ```ts
 * const places = new Places(64);
 * server.on("connection", (socket) => {
 *   socket.once("close", () => places.leave(socket));
 *   places.take(socket)?.destroy();
 * });
 * ```
 */
export { groupOf } from "./address-group.ts";
export { Newcomers, type NewcomersOptions } from "./newcomers.ts";
export { Places } from "./places.ts";
export { RequestTurns } from "./request-turns.ts";
