import type { IpAddress, IpFamily } from "#base/ip";
import {
  bind,
  C,
  close,
  decodeSockaddr,
  type Endpoint,
  encodeSockaddr,
  getsockname,
  listen,
  setsockopt,
  socket,
} from "#kernel/ffi";
import { inNetNs, type NetNs } from "#kernel/netns";
import { applySocketOptions, keepRefused, restrictToIpv6, type SocketOptions } from "./options.ts";

/** Namespace and options of a socket. */
export interface SocketPlace extends SocketOptions {
  /** The namespace; default: that of the process. */
  readonly netns?: Pick<NetNs, "fd"> | undefined;
}

/**
 * Makes a listening TCP socket in another namespace, for `server.listen({ fd })`. Whoever adopts the descriptor closes
 * it. With `port` 0 the kernel chooses; see {@link localEndpoint}. Throws {@link KernelError} `busy` for a taken port,
 * `not-found` for an address that the namespace does not have.
 */
export function listenTcp(
  address: IpAddress,
  port: number,
  options: SocketPlace & { readonly backlog?: number } = {},
): number {
  return prepare(C.SOCK_STREAM, address.family, options, (fd) => {
    setsockopt(fd, C.SOL_SOCKET, C.SO_REUSEADDR, 1);
    bind(fd, encodeSockaddr({ address, port }), `listen on ${format(address, port)}`);
    listen(fd, options.backlog ?? 511, `listen on ${format(address, port)}`);
  });
}

/**
 * Like {@link listenTcp}, for a UDP socket, for `dgram`'s `socket.bind({ fd })`. `errorQueue`: datagrams of the socket that ICMP says were refused are in its error queue. Node.js must not adopt
 * such a socket: it ends the process when it meets one of these.
 */
export function bindUdp(
  address: IpAddress,
  port: number,
  options: SocketPlace & { readonly errorQueue?: boolean } = {},
): number {
  return prepare(C.SOCK_DGRAM, address.family, options, (fd) => {
    if (options.errorQueue === true) keepRefused(fd, address.family);
    bind(fd, encodeSockaddr({ address, port }), `bind ${format(address, port)}`);
  });
}

/**
 * Makes an unconnected TCP socket with its options, bound to `source` if given, for `new net.Socket({ fd }).connect()`
 * under Node. The owner that adopts the descriptor closes it. Throws {@link KernelError}.
 */
export function openTcp(
  family: IpFamily,
  options: SocketPlace & { readonly source?: IpAddress | undefined } = {},
): number {
  const { source } = options;
  if (source === undefined) return prepare(C.SOCK_STREAM, family, options, () => undefined);
  return prepare(C.SOCK_STREAM, family, options, (fd) =>
    bind(fd, encodeSockaddr({ address: source, port: 0 }), () => `bind source address ${source}`),
  );
}

/** The local address and port of a socket. Throws {@link KernelError}. */
export function localEndpoint(fd: number): Endpoint {
  return decodeSockaddr(getsockname(fd));
}

function prepare(type: number, family: IpFamily, options: SocketPlace, finish: (fd: number) => void): number {
  const fd = socketIn(options.netns, family === 4 ? C.AF_INET : C.AF_INET6, type | C.SOCK_NONBLOCK, 0);
  try {
    applySocketOptions(fd, family, options);
    if (family === 6) restrictToIpv6(fd, options.v6Only ?? true);
    finish(fd);
    return fd;
  } catch (error) {
    close(fd);
    throw error;
  }
}

/** A socket of the namespace, or of the process. */
export function socketIn(netns: Pick<NetNs, "fd"> | undefined, domain: number, type: number, protocol: number): number {
  if (netns === undefined) return socket(domain, type, protocol);
  return inNetNs(netns, () => socket(domain, type, protocol));
}

function format(address: IpAddress, port: number): string {
  return address.family === 4 ? `${address}:${port}` : `[${address}]:${port}`;
}
