/**
 * A connection as a relay of bytes sees it: the common interface of Node's sockets and of those of kernel/reactor.
 *
 * Owns: the contract of such a connection. Refuses to know: its making, and the meaning of its bytes.
 *
 * ```ts
 * stream.on("data", (chunk) => other.write(chunk) || stream.pause());
 * stream.once("end", () => other.end());
 * ```
 */
export type { ByteStream, TransportState } from "./byte-stream.ts";
export { type ByteStreamEvents, StreamListeners } from "./listeners.ts";
export { NodeStream } from "./node-stream.ts";
