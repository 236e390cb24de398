/**
 * The sockets of a namespace that wait for strangers: listening TCP sockets and unconnected UDP sockets, asked of the kernel by sock_diag(7).
 *
 * Owns: {@link SockDiag}, its encoding, a fake. Does not know: whose a socket is.
 *
 * ```ts
 * using sockets = openSockDiag(netns);
 * sockets.listeners().some((one) => takes(one, address, "TCP", 22));
 * ```
 */
export { FakeSockDiag } from "./fake.ts";
export { openSockDiag } from "./port.ts";
export { type ListeningSocket, type SockDiag, takes } from "./types.ts";
