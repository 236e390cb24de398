import { KernelError } from "#kernel/errors";
import {
  acceptFrom,
  C,
  close as closeDescriptor,
  decodeSockaddr,
  type Endpoint,
  EPOLL,
  open as openDescriptor,
} from "#kernel/ffi";
import { type Reactor, reactorFor, type Watched } from "./reactor.ts";

/** include/uapi/asm-generic/errno.h. */
const [EAGAIN, ENOMEM, ENFILE, EMFILE, ENOBUFS] = [11, 12, 23, 24, 105];
const SHORTAGES: ReadonlySet<number> = new Set([ENOMEM, ENFILE, EMFILE, ENOBUFS]);
/** ENONET, EPROTO, ENOPROTOOPT, EOPNOTSUPP, ENETDOWN, ENETUNREACH, ECONNABORTED, EHOSTDOWN, EHOSTUNREACH: of the client that is lost (accept(2)). */
const CLIENT_FAULTS: ReadonlySet<number> = new Set([64, 71, 92, 95, 100, 101, 103, 112, 113]);
/** Out of memory, or of descriptors without one to spare: tried again after this, milliseconds. Clients wait in the backlog. */
const SHORTAGE_MS = 100;
/** Clients that are refused in one turn. */
const REFUSALS_A_TURN = 1024;
/** Clients of one turn, so that a flood of them does not keep tunnels waiting. */
const ACCEPTS_A_TURN = 16;
/** struct sockaddr_in6. */
const SOCKADDR_BYTES = 28;

/** What a listener tells. */
export interface TcpListenerEvents {
  /** A client: a connected, non-blocking descriptor, which is the taker's. May throw {@link KernelError}: that client is lost. */
  onClient(fd: number, remote: Endpoint): void;
  /** Clients were refused for want of descriptors, or must wait until the kernel has memory again; the listener goes on. */
  onFault(error: KernelError): void;
  /** It has ended by itself. Must not throw. */
  onError(error: KernelError): void;
}

/** `undefined` where there is none to spare. */
function spareDescriptor(): number | undefined {
  try {
    return openDescriptor("/dev/null", C.O_RDONLY);
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return undefined;
  }
}

/** A listening socket that accepts as clients come. */
export class TcpListener implements Watched {
  readonly fd: number;
  readonly #reactor: Reactor;
  readonly #events: TcpListenerEvents;
  /** Of the client that was accepted last. Not a new array for each: one that the kernel shall write to costs more than a system call. */
  readonly #address = Buffer.allocUnsafeSlow(SOCKADDR_BYTES);
  #retry: NodeJS.Timeout | undefined;
  /** Given up for a moment to refuse clients when there is no other. */
  #spare: number | undefined;
  #isClosed = false;

  /** Adopts a descriptor that listens and does not block. Throws {@link KernelError} when it cannot be watched; it is closed then. */
  constructor(fd: number, events: TcpListenerEvents) {
    this.fd = fd;
    this.#events = events;
    this.#reactor = reactorFor(fd);
    this.#reactor.add(this, EPOLL.in);
    this.#spare = spareDescriptor();
  }

  /** Clients that were accepted stay. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#retry);
    if (this.#spare !== undefined) closeDescriptor(this.#spare);
    this.#spare = undefined;
    this.#reactor.remove(this);
  }

  abandon(): void {
    this.close();
  }

  /**
   * Who waits is better off with an end than with silence: each takes the place of the spare descriptor for a moment. False where there
   * is none, or the shortage is of something else.
   */
  #refuse(): boolean {
    if (this.#spare === undefined) return false;
    closeDescriptor(this.#spare);
    this.#spare = undefined;
    let result = 0;
    for (let taken = 0; taken < REFUSALS_A_TURN && (result >= 0 || CLIENT_FAULTS.has(-result)); taken += 1) {
      result = acceptFrom(this.fd, this.#address);
      if (result >= 0) closeDescriptor(result);
    }
    this.#spare = spareDescriptor();
    return result >= 0 || result === -EAGAIN;
  }

  onReady(): void {
    this.#spare ??= spareDescriptor();
    for (let taken = 0; taken < ACCEPTS_A_TURN && !this.#isClosed; taken += 1) {
      const fd = acceptFrom(this.fd, this.#address);
      if (fd >= 0) this.#took(fd);
      else if (fd === -EAGAIN) return;
      else if (!CLIENT_FAULTS.has(-fd)) {
        this.#failed(-fd);
        return;
      }
    }
  }

  #took(fd: number): void {
    try {
      this.#events.onClient(fd, decodeSockaddr(this.#address));
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      this.#events.onFault(error);
    }
  }

  #failed(errno: number): void {
    const error = KernelError.fromErrno(errno, "accept a client");
    if (SHORTAGES.has(errno)) {
      const isRefused = this.#refuse();
      this.#events.onFault(error);
      if (isRefused || this.#isClosed) return;
      this.#reactor.modify(this, 0);
      this.#retry = setTimeout(() => this.#reactor.modify(this, EPOLL.in), SHORTAGE_MS);
      return;
    }
    this.close();
    this.#events.onError(error);
  }
}
