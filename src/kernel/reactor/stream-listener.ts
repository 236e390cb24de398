import { KernelError } from "#kernel/errors";
import { acceptFrom, C, close as closeDescriptor, EPOLL, open as openDescriptor } from "#kernel/ffi";
import { type Reactor, reactorFor, type Watched } from "./reactor.ts";

/** include/uapi/asm-generic/errno.h. */
const [EAGAIN, ENOMEM, ENFILE, EMFILE, ENOBUFS] = [11, 12, 23, 24, 105];
const SHORTAGES: ReadonlySet<number> = new Set([ENOMEM, ENFILE, EMFILE, ENOBUFS]);
/**
 * Errors of one client, which is lost (accept(2)): EPERM and EACCES (a rule or a security module forbids it), ENONET, EPROTO, ENOPROTOOPT,
 * EOPNOTSUPP, ENETDOWN, ENETUNREACH, ECONNABORTED, EHOSTDOWN, EHOSTUNREACH.
 */
const CLIENT_FAULTS: ReadonlySet<number> = new Set([1, 13, 64, 71, 92, 95, 100, 101, 103, 112, 113]);
/**
 * Delay of the next accept after a shortage of memory, or of descriptors if there is no spare descriptor, in milliseconds. Clients wait in
 * the backlog.
 */
const SHORTAGE_MS = 100;
/** The maximum number of clients that are refused in one tick. */
const REFUSALS_PER_TICK = 1024;
/** The default of `acceptsPerTick`: many new clients do not delay tunnels. */
const ACCEPTS_PER_TICK = 16;

/** Options of accepting. */
export interface AcceptOptions {
  /** Takes the address of each client before `onAccepted`. */
  readonly address?: Uint8Array;
  /** The maximum number of clients that are accepted in one tick. Default 16. */
  readonly acceptsPerTick?: number;
}

/** The failures of a listener. */
export interface ListenerFaults {
  /**
   * Clients are refused because descriptors have run out, or must wait until the kernel has memory again. The listener continues. If the callee
   * pauses it, they are left to another process instead.
   */
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

/** A listening stream socket that accepts clients. */
export abstract class StreamListener implements Watched {
  readonly fd: number;
  readonly #reactor: Reactor;
  readonly #faults: ListenerFaults;
  readonly #address: Uint8Array | null;
  readonly #acceptsPerTick: number;
  #retry: NodeJS.Timeout | undefined;
  /** The spare descriptor, which is closed for a moment to accept and refuse clients when no other descriptor is free. */
  #spare: number | undefined;
  #isPaused = false;
  #isClosed = false;

  /** Adopts a descriptor that listens and does not block. */
  protected constructor(fd: number, faults: ListenerFaults, options: AcceptOptions) {
    this.fd = fd;
    this.#faults = faults;
    this.#address = options.address ?? null;
    this.#acceptsPerTick = options.acceptsPerTick ?? ACCEPTS_PER_TICK;
    this.#reactor = reactorFor(fd);
    this.#reactor.add(this, EPOLL.in);
    this.#spare = spareDescriptor();
  }

  /** A client was accepted. May throw {@link KernelError}. */
  protected abstract onAccepted(fd: number): void;

  /** Called once, when the listener is closed. */
  protected onClose(): void {
    // Most listeners have nothing else to release.
  }

  /** While true, clients wait in the backlog, or another process that shares the socket accepts them. */
  get isPaused(): boolean {
    return this.#isPaused;
  }

  set isPaused(isPaused: boolean) {
    if (this.#isClosed || isPaused === this.#isPaused) return;
    this.#isPaused = isPaused;
    this.#watch();
  }

  #watch(): void {
    this.#reactor.modify(this, this.#isPaused || this.#retry !== undefined ? 0 : EPOLL.in);
  }

  /** Closes the listener. Accepted clients stay connected. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#retry);
    if (this.#spare !== undefined) closeDescriptor(this.#spare);
    this.#spare = undefined;
    this.#reactor.remove(this);
    this.onClose();
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
    for (let taken = 0; taken < this.#acceptsPerTick && !this.#isClosed && !this.#isPaused; taken += 1) {
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
      this.onAccepted(fd);
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      this.#faults.onFault(error);
    }
  }

  #failed(errno: number): void {
    const error = KernelError.fromErrno(errno, "accept a client");
    if (SHORTAGES.has(errno)) {
      this.#faults.onFault(error);
      if (this.#isClosed || this.#isPaused || this.#refuse()) return;
      this.#retry = setTimeout(() => {
        this.#retry = undefined;
        this.#watch();
      }, SHORTAGE_MS);
      this.#watch();
      return;
    }
    this.close();
    this.#faults.onError(error);
  }
}
