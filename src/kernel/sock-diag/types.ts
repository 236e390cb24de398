import type { IpAddress } from "#base/ip";

/** A socket that takes packets of strangers. */
export interface ListeningSocket {
  readonly protocol: "TCP" | "UDP";
  /** The address that it is bound to; unspecified: all addresses. */
  readonly address: IpAddress;
  readonly port: number;
  /** True if it takes packets of its own family alone. A socket at `::` may take IPv4 too. */
  readonly isOneFamily: boolean;
}

/** Asks the kernel for sockets. Synchronous: a machine's listeners take a millisecond. The opener disposes it. */
export interface SockDiag extends Disposable {
  /** All listening sockets of both families. Throws `KernelError`. */
  listeners(): readonly ListeningSocket[];
}

/** True if the socket takes packets to this address and port. Pure. */
export function takes(
  { address: bound, port: own, protocol: kind, isOneFamily }: ListeningSocket,
  address: IpAddress,
  protocol: string,
  port: number,
): boolean {
  if (own !== port || kind !== protocol) return false;
  if (bound.isUnspecified) return bound.family === address.family || (bound.family === 6 && !isOneFamily);
  return bound.equals(address);
}
