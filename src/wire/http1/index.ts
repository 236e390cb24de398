/**
 * Framing of HTTP/1.x messages for a proxy (RFC 9112): finds the start and end of each message. Pure: bytes in, results and bytes
 * out. Heads of requests are read by `wire/http-connect`.
 *
 * Owns: the head of a response, the framing of bodies. Does not know: sockets, and what fields mean beyond framing.
 *
 * ```ts
 * const body = new BodyReader(requestFraming(head)); // after it was found not to be malformed
 * const progress = body.push(chunk);
 * if (progress.kind === "done") next(progress.rest);
 * ```
 */
export { BodyReader } from "./body-reader.ts";
export { encodeChunk, encodeLastChunk } from "./chunks.ts";
export { type BodyFraming, isBodiless, type ResponseHead, requestFraming, responseFraming } from "./framing.ts";
export { ResponseHeadReader } from "./response-head-reader.ts";
