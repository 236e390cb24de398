/**
 * The part of an HTTP/2 client that one request over one connection needs: frames, flow control, header decompression.
 * It exists for the CNI executable, because a full client would double its start-up time. Pure: bytes in, bytes out.
 * Source: RFC 9113 (HTTP/2) and RFC 7541 (HPACK).
 *
 * ```ts
 * const call = new Http2Call({ path: "/pkg.cnirpc.CNI/Add", authority: "localhost", headers: {}, body });
 * socket.write(call.start());
 * socket.on("data", (chunk) => socket.write(call.receive(chunk)));
 * call.response; // set once the stream has ended
 * ```
 */
export { Http2Call, type Http2Response, MAX_RESPONSE_BYTES } from "./call.ts";
export { Http2Error } from "./errors.ts";
export { decodeHeaderBlock, encodeHeaderBlock, type Header } from "./hpack.ts";
export { HpackDecoder } from "./hpack-decoder.ts";
