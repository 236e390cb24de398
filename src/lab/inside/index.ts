/**
 * Connections and requests that start in another network namespace, as a process in it would make them.
 *
 * Owns: sockets for the length of one call, or until they are returned. Does not know: owners of namespaces, the
 * meaning of answers.
 *
 * ```ts
 * const socket = await connectInside(netns, { address, port: 8093 }, { timeoutMs: 1000 });
 * const { status, body } = await request(socket, { path: "/readyz", host: "node1" }, { timeoutMs: 1000 });
 * ```
 */
export { connectInside, type Destination } from "./connect.ts";
export { InsideError } from "./errors.ts";
export { establishedIn, socketsOf } from "./established.ts";
export { readAll, request, requestWhole, type WholeAnswer } from "./exchange.ts";
export { connectThrough, requestConnect } from "./through.ts";
export { secure } from "./tls.ts";
