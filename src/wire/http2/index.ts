/**
 * HTTP/2 of our own (RFC 9113, RFC 7541): a connection of either role for what gRPC and CONNECT need, and a call for the CNI executable, which is
 * the part of a client that one request over one connection needs, because a full client would double the start-up time. Pure: bytes in, bytes out.
 *
 * Owns: frames, flow control, header compression, the rules of messages, bounds of what a peer can cause. Does not know: sockets, timers, gRPC.
 *
 * ```ts
 * const connection = new Http2Connection("client", { clock: systemClock }, events);
 * const stream = connection.openStream(headers, false, streamEvents);
 * stream.sendData([bytes], true);
 * socket.on("data", (bytes) => connection.receive(bytes));
 * for (const view of connection.takeOutput(262_144)) socket.write(view); // after events.onWantsWrite
 *
 * const call = new Http2Call({ path: "/pkg.cnirpc.CNI/Add", authority: "localhost", headers: {}, body });
 * socket.write(call.start());
 * socket.on("data", (chunk) => socket.write(call.receive(chunk)));
 * call.response; // set once the stream has ended
 * ```
 */
export { Http2Call, type Http2Response, MAX_RESPONSE_BYTES } from "./call.ts";
export { Http2Connection } from "./connection/connection.ts";
export { Http2Code } from "./connection/frames.ts";
export type { Http2ConnectionFault, Http2Events, Http2Options, SpentLimits } from "./connection/options.ts";
export type { Http2Stream, Http2StreamEvents, Http2StreamFault } from "./connection/stream.ts";
export { Http2Error } from "./errors.ts";
export { decodeHeaderBlock, encodeHeaderBlock, type Header } from "./hpack.ts";
