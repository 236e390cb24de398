/**
 * TCP connections of our own, for programs that pass on many: an epoll instance of each thread that the thread's event loop watches. A
 * connection costs a third of the time of a socket of Node's, and no memory of its own while it is idle.
 *
 * Owns: descriptors, readiness, what waits to be sent. Refuses to know: what is said.
 *
 * ```ts
 * const listener = new TcpListener(listenTcp(address, port, { noDelay: true }), (client) => serve(client));
 * const upstream = await connectTcp({ address, port }, { source, signal });
 * ```
 */

export { type ConnectTcpOptions, connectTcp } from "./connect-tcp.ts";
export { DescriptorWatch } from "./descriptor-watch.ts";
export { closeReactor } from "./reactor.ts";
export { TcpListener } from "./tcp-listener.ts";
export { TcpStream, type TcpStreamOptions } from "./tcp-stream.ts";
