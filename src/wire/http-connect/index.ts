/**
 * HTTP/1.x as a CONNECT proxy speaks it: the strict head of a request, the target of a CONNECT, and replies. Pure:
 * bytes in, verdicts and bytes out.
 *
 * Owns: what is well-formed, `host:port`, the status of a failure. Refuses to know: sockets, destinations that are
 * allowed, and bodies.
 *
 * ```ts
 * const reader = new ConnectReader(); // RequestHeadReader, where other methods are served too
 * const progress = reader.push(chunk);
 * if (progress.kind === "refused") socket.end(encodeReply(progress.status, progress.body));
 * if (progress.kind === "connect") dial(progress.target); // then send CONNECTION_ESTABLISHED, and progress.rest onwards
 * ```
 */
export { type ConnectProgress, ConnectReader, connectRequest } from "./connect.ts";
export { fieldValues, type HeaderField, parseFieldLine, type RequestHead } from "./head.ts";
export { type HeadLimits, RequestHeadReader } from "./head-reader.ts";
export { formatHostPort, type HostPort, parseHostPort } from "./host-port.ts";
export type { Refusal } from "./refusal.ts";
export { CONNECTION_ESTABLISHED, encodeReply, type ReplyStatus, statusOfDialError } from "./reply.ts";
