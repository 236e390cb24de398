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
/**
 * Errors of one client, which is lost (accept(2)): ENONET, EPROTO, ENOPROTOOPT, EOPNOTSUPP, ENETDOWN, ENETUNREACH, ECONNABORTED, EHOSTDOWN,
 * EHOSTUNREACH.
 */
const CLIENT_FAULTS: ReadonlySet<number> = new Set([64, 71, 92, 95, 100, 101, 103, 112, 113]);
/**
 * Delay of the next accept after a shortage of memory, or of descriptors if there is no spare descriptor, in milliseconds. Clients wait in
 * the backlog.
 */
const SHORTAGE_MS = 100;
/** The maximum number of clients that are refused in one tick. */
const REFUSALS_PER_TICK = 1024;
/** The maximum number of clients that are accepted in one tick, so that many new clients do not delay tunnels. */
const ACCEPTS_PER_TICK = 16;
/** struct sockaddr_in6. */
const SOCKADDR_BYTES = 28;

/** Events of a listener. */
export interface TcpListenerEvents {
  /**
   * A client was accepted: a connected, non-blocking descriptor, which the callee owns. May throw {@link KernelError}: that client is lost.
   */
  onClient(fd: number, remote: Endpoint): void;
  /** Clients were refused because descriptors ran out, or must wait until the kernel has memory again. The listener continues. */
  onFault(error: KernelError): void;
  /** The listener failed and is closed. Must not throw. */
  onError(error: KernelError): void;
}

/** Reserves a descriptor; `undefined` if none is left. */
function spareDescriptor(): number | undefined {
  try {
    return openDescriptor("/dev/null", C.O_RDONLY);
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return undefined;
  }
}

/** A listening socket that accepts clients. */
export class TcpListener implements Watched {
  readonly fd: number;
  readonly #reactor: Reactor;
  readonly #events: TcpListenerEvents;
  /** Address of the client that was accepted last. Reused, because allocating a buffer for the kernel costs more than a system call. */
  readonly #address = Buffer.allocUnsafeSlow(SOCKADDR_BYTES);
  #retry: NodeJS.Timeout | undefined;
  /** The spare descriptor, which is closed for a moment to accept and refuse clients when no other descriptor is free. */
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

  /** Closes the listener. Accepted clients stay connected. */
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
   * Refuses the clients of the backlog, so that they see the end of the connection at once: each is accepted on the spare descriptor and
   * closed. False if there is no spare descriptor, or if another resource is short.
   */
  #refuse(): boolean {
    if (this.#spare === undefined) return false;
    closeDescriptor(this.#spare);
    this.#spare = undefined;
    let result = 0;
    for (let taken = 0; taken < REFUSALS_PER_TICK && (result >= 0 || CLIENT_FAULTS.has(-result)); taken += 1) {
      result = acceptFrom(this.fd, this.#address);
      if (result >= 0) closeDescriptor(result);
    }
    this.#spare = spareDescriptor();
    return result >= 0 || result === -EAGAIN;
  }

  onReady(): void {
    this.#spare ??= spareDescriptor();
    for (let taken = 0; taken < ACCEPTS_PER_TICK && !this.#isClosed; taken += 1) {
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
