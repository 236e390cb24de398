/**
 * Connections whose clients have not proved yet who they are, or what they want: bounded in number, for a listener and for each address, so that
 * silent clients cost a bounded number of descriptors and keep nobody out.
 *
 * Owns: the choice of the connection that has to go. Does not know: how a client proves itself, and how long that may take.
 *
 * ```ts
 * const newcomers = new Newcomers({ max: 512, clock });
 * server.on("connection", (socket) => newcomers.admit(socket));
 * server.on("secureConnection", (socket) => newcomers.known(socket));
 * ```
 */
export { groupOf } from "./address-group.ts";
export { Newcomers, type NewcomersOptions } from "./newcomers.ts";
