import { decodeSockaddr, type Endpoint } from "#kernel/ffi";
import { type ListenerFaults, StreamListener } from "./stream-listener.ts";

/** struct sockaddr_in6. */
const SOCKADDR_BYTES = 28;

/** Events of a listener. */
export interface TcpListenerEvents extends ListenerFaults {
  /**
   * A client was accepted: a connected, non-blocking descriptor, which the callee owns. May throw {@link KernelError}: that client is lost.
   */
  onClient(fd: number, remote: Endpoint): void;
}

/** A listening TCP socket that accepts clients. */
export class TcpListener extends StreamListener {
  readonly #events: TcpListenerEvents;
  /** Address of the client that was accepted last. Reused, because allocating a buffer for the kernel costs more than a system call. */
  readonly #address: Buffer;

  /** Adopts a descriptor that listens and does not block. Throws {@link KernelError} when it cannot be watched; it is closed then. */
  constructor(fd: number, events: TcpListenerEvents) {
    const address = Buffer.allocUnsafeSlow(SOCKADDR_BYTES);
    super(fd, events, { address });
    this.#events = events;
    this.#address = address;
  }

  protected onAccepted(fd: number): void {
    this.#events.onClient(fd, decodeSockaddr(this.#address));
  }
}
