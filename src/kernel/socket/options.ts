import type { IpFamily } from "#base/ip";
import { C, setsockopt } from "#kernel/ffi";

/** Numbers of include/uapi/linux/in.h and in6.h. */
const IPPROTO_IP = 0;
const IPPROTO_TCP = 6;
const IPPROTO_IPV6 = 41;
const TCP_NODELAY = 1;
const TCP_MAXSEG = 2;
const IP_RECVERR = 11;
const IP_FREEBIND = 15;
const IP_TRANSPARENT = 19;
const IP_BIND_ADDRESS_NO_PORT = 24;
const IPV6_RECVERR = 25;
const IPV6_V6ONLY = 26;
const IPV6_TRANSPARENT = 75;
const IPV6_FREEBIND = 78;
const SO_REUSEPORT = 15;

/** Options that Node.js cannot set, or not before the socket is bound. */
export interface SocketOptions {
  /** SO_MARK, 32 bits, for policy rules. */
  readonly mark?: number | undefined;
  /** SO_BINDTODEVICE: the socket sends and receives only through this link. */
  readonly device?: string | undefined;
  /** If true, the socket may bind to an address that this host does not have, or does not have yet. */
  readonly freebind?: boolean | undefined;
  /** If true, the socket may accept and send with addresses of other hosts. Needs CAP_NET_ADMIN. */
  readonly transparent?: boolean | undefined;
  /** If true, the kernel chooses the source port at connect, so that one source address can have more than 28,000 connections. */
  readonly bindAddressNoPort?: boolean | undefined;
  readonly reusePort?: boolean | undefined;
  /** TCP_NODELAY; accepted connections inherit it. */
  readonly noDelay?: boolean | undefined;
  /**
   * SO_RCVBUF in bytes: the kernel doubles the number for its own needs, and does not enlarge the buffer by itself. Accepted connections inherit
   * it. Default: the buffer grows up to the kernel parameter tcp_rmem.
   */
  readonly receiveBufferBytes?: number | undefined;
  /** TCP_MAXSEG in bytes, before the connection: the largest segment that is sent, and that the peer is told. Default: what the link allows. */
  readonly maxSegmentBytes?: number | undefined;
  /** IPv6 only: accept no IPv4 connections. Default true, so that both families can listen on one port. */
  readonly v6Only?: boolean | undefined;
}

/** Sets the options on a raw descriptor. Throws {@link KernelError}. */
export function applySocketOptions(fd: number, family: IpFamily, options: SocketOptions): void {
  const level = family === 4 ? IPPROTO_IP : IPPROTO_IPV6;
  if (options.mark !== undefined) setsockopt(fd, C.SOL_SOCKET, C.SO_MARK, options.mark | 0, `set mark ${options.mark}`);
  if (options.device !== undefined) {
    setsockopt(
      fd,
      C.SOL_SOCKET,
      C.SO_BINDTODEVICE,
      Buffer.from(`${options.device}\0`),
      `bind to link ${options.device}`,
    );
  }
  if (options.freebind === true) setsockopt(fd, level, family === 4 ? IP_FREEBIND : IPV6_FREEBIND, 1);
  if (options.transparent === true) setsockopt(fd, level, family === 4 ? IP_TRANSPARENT : IPV6_TRANSPARENT, 1);
  // The IPv4 option serves IPv6 sockets as well.
  if (options.bindAddressNoPort === true) setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (options.reusePort === true) setsockopt(fd, C.SOL_SOCKET, SO_REUSEPORT, 1);
  if (options.noDelay === true) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const { receiveBufferBytes, maxSegmentBytes } = options;
  if (maxSegmentBytes !== undefined) setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, maxSegmentBytes);
  if (receiveBufferBytes !== undefined) setsockopt(fd, C.SOL_SOCKET, C.SO_RCVBUF, receiveBufferBytes);
}

/** Sets IPV6_V6ONLY, for TCP and UDP sockets before they are bound; raw sockets do not have it. */
export function restrictToIpv6(fd: number, only: boolean): void {
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, Number(only));
}

/** Makes the kernel keep datagrams of a UDP socket that ICMP says were refused in its error queue. */
export function keepRefused(fd: number, family: IpFamily): void {
  if (family === 4) setsockopt(fd, IPPROTO_IP, IP_RECVERR, 1);
  else setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
}
