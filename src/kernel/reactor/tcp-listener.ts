import { KernelError } from "#kernel/errors";
import { acceptFrom, decodeSockaddr, type Endpoint, EPOLL } from "#kernel/ffi";
import { type Reactor, reactor, type Watched } from "./reactor.ts";

/** include/uapi/asm-generic/errno.h. */
const [EAGAIN, ENOMEM, ENFILE, EMFILE, EPROTO, ECONNABORTED, ENOBUFS] = [11, 12, 23, 24, 71, 103, 105];
/** Out of descriptors or memory: tried again after this, milliseconds. Clients wait in the backlog. */
const SHORTAGE_MS = 100;
/** Clients of one turn, so that a flood of them does not keep tunnels waiting. */
const ACCEPTS_A_TURN = 16;
/** struct sockaddr_in6. */
const SOCKADDR_BYTES = 28;

/** What a listener tells. */
export interface TcpListenerEvents {
  /** A client: a connected, non-blocking descriptor, which is the taker's. May throw {@link KernelError}: that client is lost. */
  onClient(fd: number, remote: Endpoint): void;
  /** A client was lost, or must wait until the kernel has descriptors or memory again; the listener goes on. */
  onFault(error: KernelError): void;
  /** It has ended by itself. Must not throw. */
  onError(error: KernelError): void;
}

/** A listening socket that accepts as clients come. */
export class TcpListener implements Watched {
  readonly fd: number;
  readonly #reactor: Reactor;
  readonly #events: TcpListenerEvents;
  #retry: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** Adopts a descriptor that listens and does not block. */
  constructor(fd: number, events: TcpListenerEvents) {
    this.fd = fd;
    this.#events = events;
    this.#reactor = reactor();
    this.#reactor.add(this, EPOLL.in);
  }

  /** Clients that were accepted stay. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#retry);
    this.#reactor.remove(this);
  }

  onReady(): void {
    for (let taken = 0; taken < ACCEPTS_A_TURN && !this.#isClosed; taken += 1) {
      const address = new Uint8Array(SOCKADDR_BYTES);
      const fd = acceptFrom(this.fd, address);
      if (fd >= 0) this.#took(fd, address);
      else if (fd === -EAGAIN) return;
      else if (fd !== -ECONNABORTED && fd !== -EPROTO) {
        this.#failed(-fd);
        return;
      }
    }
  }

  #took(fd: number, address: Uint8Array): void {
    try {
      this.#events.onClient(fd, decodeSockaddr(address));
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      this.#events.onFault(error);
    }
  }

  #failed(errno: number): void {
    const error = KernelError.fromErrno(errno, "accept a client");
    if ([ENOMEM, ENFILE, EMFILE, ENOBUFS].includes(errno)) {
      this.#events.onFault(error);
      this.#reactor.modify(this, 0);
      this.#retry = setTimeout(() => this.#reactor.modify(this, EPOLL.in), SHORTAGE_MS);
      return;
    }
    this.close();
    this.#events.onError(error);
  }
}
