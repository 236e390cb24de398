/**
 * A connection as a relay of bytes uses it: the common interface of Node.js's sockets and of the sockets of kernel/reactor.
 *
 * Owns: the contract of such a connection. Does not know: how the connection is made, and what its bytes mean.
 *
 * ```ts
 * stream.on("data", (chunk) => other.write(chunk) || stream.pause());
 * stream.once("end", () => other.end());
 * ```
 */
export type { ByteStream, TransportState } from "./byte-stream.ts";
export { type ByteStreamEvents, StreamListeners, type StreamOwner } from "./listeners.ts";
export { NodeStream, SocketReads } from "./node-stream.ts";
