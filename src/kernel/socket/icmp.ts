import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { bind, C, close, decodeSockaddr, encodeSockaddr, pollReadable, recvFrom, send, setsockopt } from "#kernel/ffi";
import { decodeEchoReply, encodeEchoRequest } from "./echo.ts";
import { type SocketPlace, socketIn } from "./inet.ts";
import { applySocketOptions } from "./options.ts";

const IPPROTO = { 4: 1, 6: 58 } as const; // ICMP, ICMPv6
const SOL_RAW = 255;
const ICMP_FILTER = 1;
/** The maximum number of echo replies that one {@link IcmpSocket.receive} reads; the others wait for the next call. */
const MAX_REPLIES_PER_READ = 4096;
const MAX_PACKET_BYTES = 65536;
/** Receive buffer, enough for the unread replies of a thousand pings. */
const RECEIVE_QUEUE_BYTES = 1 << 20;

/** A received reply. */
export interface EchoReply {
  readonly from: IpAddress;
  readonly sequence: number;
  readonly payload: Buffer;
}

/** A socket for pings; non-blocking, in the namespace that it was opened in. The opener disposes the socket. */
export interface IcmpSocket extends Disposable {
  readonly fd: number;
  readonly family: IpFamily;
  /** The echo identifier, which marks the replies to this socket. */
  readonly id: number;
  /**
   * Sends one echo request. Returns false if the socket's buffer is full. Throws {@link KernelError} if the kernel refuses
   * at once: `unreachable` without a route, `not-permitted` by a firewall.
   */
  send(to: IpAddress, sequence: number, payload?: Uint8Array): boolean;
  /** The received replies, at most 4096. */
  receive(): EchoReply[];
}

export interface IcmpSocketOptions extends SocketPlace {
  /** Default: random. */
  readonly id?: number;
  /** Source address; the kernel's choice when absent. */
  readonly source?: IpAddress;
}

/** Opens a socket for pings. Needs CAP_NET_RAW. Throws {@link KernelError}. */
export function openIcmpSocket(family: IpFamily, options: IcmpSocketOptions = {}): IcmpSocket {
  const domain = family === 4 ? C.AF_INET : C.AF_INET6;
  const fd = socketIn(options.netns, domain, C.SOCK_RAW | C.SOCK_NONBLOCK, IPPROTO[family]);
  try {
    onlyEchoReplies(fd, family);
    setsockopt(fd, C.SOL_SOCKET, C.SO_RCVBUF, RECEIVE_QUEUE_BYTES);
    applySocketOptions(fd, family, options);
    const { source } = options;
    if (source !== undefined) bind(fd, encodeSockaddr({ address: source, port: 0 }), `ping from ${source}`);
    return new RawIcmpSocket(fd, family, options.id ?? Math.floor(Math.random() * 65536));
  } catch (error) {
    close(fd);
    throw error;
  }
}

class RawIcmpSocket implements IcmpSocket {
  readonly fd: number;
  readonly family: IpFamily;
  readonly id: number;
  readonly #buffer = Buffer.alloc(MAX_PACKET_BYTES);
  #open = true;

  constructor(fd: number, family: IpFamily, id: number) {
    this.fd = fd;
    this.family = family;
    this.id = id;
  }

  send(to: IpAddress, sequence: number, payload: Uint8Array = new Uint8Array(8)): boolean {
    const address = encodeSockaddr({ address: to, port: 0 });
    return send(this.fd, encodeEchoRequest(this.family, this.id, sequence, payload), { address, what: `ping ${to}` });
  }

  receive(): EchoReply[] {
    const replies: EchoReply[] = [];
    while (replies.length < MAX_REPLIES_PER_READ) {
      const packet = recvFrom(this.fd, this.#buffer);
      if (packet === undefined) break;
      // Every raw socket of a namespace gets every reply.
      const echo = decodeEchoReply(this.family, this.#buffer.subarray(0, packet.length));
      if (echo?.id !== this.id) continue;
      replies.push({ from: decodeSockaddr(packet.from).address, sequence: echo.sequence, payload: echo.payload });
    }
    return replies;
  }

  [Symbol.dispose](): void {
    if (this.#open) close(this.fd);
    this.#open = false;
  }
}

/** Makes the kernel drop all other packets (icmp(7); RFC 3542 section 3.2). */
function onlyEchoReplies(fd: number, family: IpFamily): void {
  const blocked = Buffer.alloc(family === 4 ? 4 : 32, 0xff);
  if (family === 4) {
    blocked.writeUInt32LE(~1 >>> 0); // bit 0: echo reply
    setsockopt(fd, SOL_RAW, ICMP_FILTER, blocked);
  } else {
    const word = 129 >> 5;
    blocked.writeUInt32LE(~(1 << (129 & 31)) >>> 0, word * 4);
    setsockopt(fd, IPPROTO[6], 1, blocked);
  }
}

/**
 * Resolves with the sockets that can be read, or with none after `atMostMs`. Rejects with the signal's reason. Polls
 * each millisecond: for short waits only.
 */
export async function whenReadable(
  sockets: readonly IcmpSocket[],
  options: AbortOptions & { readonly atMostMs: number; readonly clock: Clock },
): Promise<IcmpSocket[]> {
  const { clock, signal, atMostMs } = options;
  const end = clock.monotonic() + atMostMs;
  for (;;) {
    signal?.throwIfAborted();
    const ready = new Set(
      pollReadable(
        sockets.map(({ fd }) => fd),
        0,
      ),
    );
    if (ready.size > 0 || clock.monotonic() >= end) return sockets.filter(({ fd }) => ready.has(fd));
    await sleep(1, { signal, clock });
  }
}
