/**
 * HTTP/1.x for a CONNECT proxy: the strict head of a request, the target of a CONNECT, and replies. Pure: bytes in,
 * results and bytes out.
 *
 * Owns: well-formedness, `host:port`, the status of a failure. Does not know: sockets, allowed destinations, and
 * bodies.
 *
 * ```ts
 * const reader = new ConnectReader(); // RequestHeadReader, if other methods are served too
 * const progress = reader.push(chunk);
 * if (progress.kind === "refused") socket.end(encodeReply(progress.status, progress.body));
 * if (progress.kind === "connect") dial(progress.target); // then send CONNECTION_ESTABLISHED, and progress.rest onwards
 * ```
 */
export { type ConnectProgress, ConnectReader, connectRequest } from "./connect.ts";
export { fieldValues, type HeaderField, joinEqualLengths, parseFieldLine, type RequestHead } from "./head.ts";
export { type HeadLimits, RequestHeadReader } from "./head-reader.ts";
export { formatHostPort, type HostPort, parseHostPort } from "./host-port.ts";
export type { Refusal } from "./refusal.ts";
export { CONNECTION_ESTABLISHED, encodeReply, type ReplyStatus, statusOfDialError } from "./reply.ts";
