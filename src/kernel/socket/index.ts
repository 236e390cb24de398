/**
 * Makes sockets that Node.js cannot make: in another namespace, with a mark, bound to a link or a foreign address, for pings, or for the streams
 * of kernel/reactor.
 *
 * Owns: the creation of sockets. Does not know: the protocols above them. Node.js adopts TCP and UDP descriptors.
 *
 * ```ts
 * server.listen({ fd: listenTcp(address, 9384, { netns: pod }) });
 * using ping = openIcmpSocket(4, { netns: pod });
 * ping.send(IpAddress.parse("10.0.0.2"), 1);
 * await whenReadable([ping], { atMostMs: 1000, signal });
 * ```
 */
export type { Endpoint } from "#kernel/ffi";
export { announceAddresses } from "./announce.ts";
export { type IcmpSocket, openIcmpSocket, whenReadable } from "./icmp.ts";
export { bindUdp, listenTcp, localEndpoint, openTcp, type SocketPlace } from "./inet.ts";
export { keepTcpAlive } from "./keep-alive.ts";
export { sendQueueBytes } from "./send-queue.ts";
export { decodeTcpInfo, holdsReceivedBytes, tcpInfo, transportState } from "./tcp-info.ts";
export { type ListenUnixOptions, listenUnix, openUnix } from "./unix.ts";
