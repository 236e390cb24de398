/**
 * Streams and listeners of TCP and UNIX sockets without Node.js's sockets, for programs that relay many connections: one epoll instance for each thread, which the
 * thread's event loop watches. A connection costs a third of the time of a Node socket, and no buffer while it is idle (decision 0006).
 *
 * Owns: descriptors, readiness, bytes that wait to be sent. Does not know: what the bytes mean.
 *
 * ```ts
 * const listener = new TcpListener(listenTcp(address, port, { noDelay: true }), (client) => serve(client));
 * const upstream = await connectTcp({ address, port }, { source, signal });
 * const local = UnixListener.listen(path, { umask: 0o007 }, { onClient: (fd) => serve(UnixStream.adopt(fd)), onFault, onError });
 * ```
 */

export { connectTcp } from "./connect-tcp.ts";
export { DescriptorWatch } from "./descriptor-watch.ts";
export { closeReactor } from "./reactor.ts";
export { TcpListener } from "./tcp-listener.ts";
export { TcpStream } from "./tcp-stream.ts";
export { epollStreamsFault, type TcpStreams, type TcpStreamsKind, tcpStreams } from "./tcp-streams.ts";
export { UdpPort } from "./udp-port.ts";
export { SharedUnixSocket, UnixListener, type UnixListenerEvents } from "./unix-listener.ts";
export { connectUnix, UnixStream } from "./unix-stream.ts";
