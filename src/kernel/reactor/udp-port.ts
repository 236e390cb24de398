import type { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { C, decodeSockaddr, type Endpoint, encodeSockaddr, recvFrom, send } from "#kernel/ffi";
import { bindUdp, localEndpoint, type SocketPlace } from "#kernel/socket";
import { DescriptorWatch } from "./descriptor-watch.ts";

/** The most datagrams of each kind that are read at once; the others wait for the next tick. */
const MAX_READ = 64;
/** Longer datagrams are cut. */
const MAX_BYTES = 2048;
/** The interval of reads where the event loop cannot watch the socket, in milliseconds. */
const POLL_MS = 50;
/** A send fails with the error of an earlier datagram, and is then repeated. */
const SENDS = 2;

/** The calls that a {@link UdpPort} makes; none may throw. The bytes are valid during the call only. */
export interface UdpPortEvents {
  readonly onDatagram: (bytes: Buffer, from: Endpoint) => void;
  /** A datagram that this port has sent `to` was refused: ICMP says that nobody listens there, or that it is not reached. At most the first 2 KiB, as far as the message has them. */
  readonly onRefused: (bytes: Buffer, to: Endpoint) => void;
  /** The socket cannot be read. It stays open. */
  readonly onError: (error: KernelError) => void;
}

/**
 * A UDP socket that learns which of its datagrams were refused, which Node.js's sockets do not tell unless they are connected. Does not keep the thread alive. Whoever opens it disposes of it.
 */
export class UdpPort implements Disposable {
  readonly port: number;
  readonly #fd: number;
  readonly #events: UdpPortEvents;
  readonly #watch: DescriptorWatch;
  readonly #buffer = Buffer.alloc(MAX_BYTES);
  #isClosed = false;

  /** Binds to a free port of this address. Throws `KernelError` if the namespace does not have the address. */
  constructor(address: IpAddress, events: UdpPortEvents, { netns }: Pick<SocketPlace, "netns"> = {}) {
    this.#events = events;
    this.#fd = bindUdp(address, 0, { netns, errorQueue: true });
    this.#watch = new DescriptorWatch(this.#fd, () => this.#read(), { pollMs: POLL_MS });
    this.port = localEndpoint(this.#fd).port;
  }

  /** Sends at once; returns false if the socket's buffer is full. Throws `KernelError` if the kernel refuses it, as without a route. */
  send(bytes: Uint8Array, to: { readonly address: IpAddress; readonly port: number }): boolean {
    const options = { address: encodeSockaddr(to), flags: C.MSG_DONTWAIT, what: `send to ${to.address}` };
    for (let sends = 1; ; sends += 1) {
      try {
        return send(this.#fd, bytes, options);
      } catch (error) {
        if (!(error instanceof KernelError) || sends >= SENDS) throw error;
      }
    }
  }

  #read(): void {
    // First: an error that waits there would be that of the next datagram.
    this.#drain(C.MSG_ERRQUEUE, this.#events.onRefused);
    this.#drain(0, this.#events.onDatagram);
  }

  #drain(flags: number, tell: (bytes: Buffer, peer: Endpoint) => void): void {
    for (let count = 0; count < MAX_READ && !this.#isClosed; count += 1) {
      try {
        const packet = recvFrom(this.#fd, this.#buffer, flags | C.MSG_DONTWAIT);
        if (packet === undefined) return;
        const bytes = this.#buffer.subarray(0, Math.min(packet.length, MAX_BYTES));
        tell(bytes, decodeSockaddr(packet.from));
      } catch (error) {
        if (!(error instanceof KernelError)) throw error;
        this.#events.onError(error);
      }
    }
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#watch[Symbol.dispose]();
  }
}
