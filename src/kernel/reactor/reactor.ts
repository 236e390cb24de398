import { isMainThread } from "node:worker_threads";
import {
  close,
  EPOLL,
  EPOLL_CTL,
  EpollEvents,
  epollControl,
  epollCreate,
  epollPoll,
  type LoopWatch,
  watchReadable,
} from "#kernel/ffi";

/** The maximum number of events of one poll; the others wait for the next poll. */
const MAX_EVENTS = 256;
/** Polls of one tick. The second and third follow only new descriptors; another round of the event loop would cost ten times as much. */
const MAX_POLLS = 3;
/** The maximum of bytes that a stream joins for one send. */
const JOIN_BYTES = 65_536;
/** Largest read. A stream holds no more than one read of received bytes (docs/spec/uplink-proxy.md#7). */
const READ_BYTES = 262_144;
/**
 * Views of the shared buffer that are cached. Request heads use one size; tunnels use one size for the old and one for the new settings.
 */
const MAX_VIEWS = 4;

/** Owner of a descriptor that the reactor watches. None of its methods may throw. */
export interface Watched {
  readonly fd: number;
  /** True if the owner does not keep the thread alive. */
  readonly isBackground?: boolean;
  /** Receives the bits of an epoll event. */
  onReady(bits: number): void;
  /** Called when the reactor closes. Closes the descriptor with {@link Reactor.remove} and never uses its number again. */
  abandon(): void;
}

/** An object that did not finish its work in one tick. */
export interface Ticked {
  onTick(): void;
}

/** An object that defers events to its listeners. */
export interface Emitting {
  /** Called once for each {@link Reactor.emitLater}. */
  onEmit(): void;
}

/** Every event of a connection, edge-triggered: one epoll_ctl call registers it for its whole life. */
export const STREAM_BITS = (EPOLL.in | EPOLL.priority | EPOLL.out | EPOLL.readHangUp | EPOLL.edgeTriggered) >>> 0;

/** The descriptors of one thread, and the ticks in which its event loop serves them. */
export class Reactor {
  /** Receives every read of the thread; valid during one call only. */
  readonly #buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Made by the first stream that joins chunks. */
  #joined: Buffer | undefined;
  /** Cached views of the beginning of the shared buffer. */
  readonly #views: Buffer[] = [];
  readonly #epoll = epollCreate();
  readonly #events = new EpollEvents(MAX_EVENTS);
  /** Indexed by descriptor number. */
  readonly #watched: (Watched | undefined)[] = [];
  /** Indexed by descriptor number. Distinguishes an event of a closed descriptor from one of its successor with the same number. */
  readonly #generations: number[] = [];
  #size = 0;
  /** The number of owners that keep the thread alive. */
  #kept = 0;
  readonly #loop: LoopWatch;
  #ticked = new Set<Ticked>();
  readonly #emitting: Emitting[] = [];
  #generation = 0;
  /** The next tick. */
  #next: NodeJS.Immediate | undefined;
  #isInTick = false;
  #isClosed = false;

  constructor() {
    try {
      this.#loop = watchReadable(this.#epoll);
    } catch (error) {
      close(this.#epoll);
      throw error;
    }
  }

  /**
   * Watches until {@link remove}. The thread stays alive as long as a descriptor is watched. Throws {@link KernelError}; the descriptor is
   * closed then.
   */
  add(watched: Watched, bits: number): void {
    this.#generation = (this.#generation + 1) >>> 0;
    try {
      epollControl(this.#epoll, EPOLL_CTL.add, watched.fd, bits, [watched.fd, this.#generation]);
    } catch (error) {
      close(watched.fd);
      throw error;
    }
    // The previous descriptor of this number may have been closed by other code.
    const before = this.#watched[watched.fd];
    if (before !== undefined) this.#count(before, -1);
    this.#watched[watched.fd] = watched;
    this.#generations[watched.fd] = this.#generation;
    this.#count(watched, 1);
    this.#standBy();
  }

  /** Makes `watched` the owner of a descriptor that is watched already, with the same bits. */
  replace(watched: Watched): void {
    if (this.#watched[watched.fd] === undefined) throw new Error(`Reactor: descriptor ${watched.fd} is not watched`);
    this.#watched[watched.fd] = watched;
  }

  /** Sets other bits. Does nothing once the descriptor is no longer watched: its number may have been reused. */
  modify(watched: Watched, bits: number): void {
    const { fd } = watched;
    if (this.#watched[fd] === watched)
      epollControl(this.#epoll, EPOLL_CTL.modify, fd, bits, [fd, this.#generations[fd] ?? 0]);
  }

  /** Closes the descriptor. Does nothing once it is no longer watched. */
  remove(watched: Watched): void {
    const { fd } = watched;
    if (this.#watched[fd] !== watched) return;
    this.#watched[fd] = undefined;
    this.#count(watched, -1);
    try {
      // A close alone leaves the file watched as long as another process has it: each event would still wake the loop, those of a listener for ever.
      epollControl(this.#epoll, EPOLL_CTL.remove, fd, 0, [0, 0]);
    } finally {
      close(fd);
    }
  }

  /** Adjusts the counts by one. */
  #count(watched: Watched, by: 1 | -1): void {
    this.#size += by;
    if (watched.isBackground === true) return;
    this.#kept += by;
    if (this.#kept === (by === 1 ? 1 : 0)) this.#loop.keepAlive(by === 1);
  }

  /** Requests a call of `onTick` in the next tick, after the events that are pending. */
  tickLater(ticked: Ticked): void {
    this.#ticked.add(ticked);
    this.#due();
  }

  /** Requests a call of `onEmit`, never within the current call: before the next poll, or at the end of the tick. */
  emitLater(emitting: Emitting): void {
    this.#emitting.push(emitting);
    if (!this.#isInTick) this.#scheduleEmits();
  }

  /** Takes chunks that are sent together; valid during one call only. */
  get joinBuffer(): Buffer {
    this.#joined ??= Buffer.allocUnsafeSlow(JOIN_BYTES);
    return this.#joined;
  }

  /**
   * A view of the shared buffer for reads of at most `bytes`. Views are expensive to create and few sizes are used, so they are cached
   * unless `isCached` is false.
   */
  readBuffer(bytes = READ_BYTES, options: { readonly isCached?: boolean } = {}): Buffer {
    const wanted = Math.min(bytes, READ_BYTES);
    const known = this.#views.find(({ length }) => length === wanted);
    if (known !== undefined) return known;
    const made = this.#buffer.subarray(0, wanted);
    if (options.isCached === false) return made;
    this.#views.unshift(made);
    if (this.#views.length > MAX_VIEWS) this.#views.pop();
    return made;
  }

  close(): void {
    this.#isClosed = true;
    this.#scheduleEmits();
    for (const watched of [...this.#watched]) watched?.abandon();
    clearImmediate(this.#next);
    this.#loop.close();
    close(this.#epoll);
  }

  /** Schedules a tick in the next round of the event loop. It does not start that round. */
  #standBy(): void {
    this.#next ??= setImmediate(this.#tick).unref();
  }

  /** Schedules a tick, and makes the event loop run a round at once. */
  #due(): void {
    this.#standBy();
    this.#next?.ref();
  }

  /** Ticks run in immediates, so that promises settle as they do after Node.js's own events. */
  readonly #tick = (): void => {
    this.#next = undefined;
    if (this.#isClosed) return;
    this.#isInTick = true;
    try {
      this.#pollAndServe();
      this.#emitAll();
    } finally {
      this.#isInTick = false;
      if (this.#size > 0 && !this.#isClosed) this.#standBy();
      if (this.#emitting.length > 0) this.#scheduleEmits();
    }
  };

  #scheduleEmits(): void {
    // A closed reactor runs no further tick.
    if (this.#isClosed) process.nextTick(this.#emitAll);
    else this.#due();
  }

  #poll(): void {
    const count = epollPoll(this.#epoll, this.#events);
    for (let at = 0; at < count; at += 1) {
      const fd = this.#events.data(at, 0);
      if (this.#generations[fd] === this.#events.data(at, 1)) this.#watched[fd]?.onReady(this.#events.bits(at));
    }
  }

  readonly #emitAll = (): void => {
    let emitted = 0;
    try {
      // A listener may cause further events.
      while (emitted < this.#emitting.length) {
        emitted += 1;
        this.#emitting[emitted - 1]?.onEmit();
      }
    } finally {
      // After a listener has thrown, the other streams still emit their events.
      this.#emitting.splice(0, emitted);
      if (this.#emitting.length > 0) this.#scheduleEmits();
    }
  };

  #pollAndServe(): void {
    let known: number;
    let polls = 0;
    do {
      known = this.#generation;
      // Deferred events are emitted before the next poll: a disconnected peer may have connected again.
      this.#emitAll();
      if (this.#isClosed) return;
      this.#poll();
      polls += 1;
      // A new descriptor is often ready at once: a client has sent its request, a near destination is connected.
    } while (this.#generation !== known && polls < MAX_POLLS && !this.#isClosed);
    if (this.#ticked.size === 0) return;
    const ticked = this.#ticked;
    this.#ticked = new Set();
    for (const one of ticked) one.onTick();
  }
}

let own: Reactor | undefined;

/** The reactor of this thread, created on first use. Throws {@link KernelError} if it cannot be created. */
export function reactor(): Reactor {
  if (own === undefined) {
    own = new Reactor();
    // The descriptors of a thread outlive it: without this a listener would still accept clients that nobody serves.
    if (!isMainThread) process.once("exit", closeReactor);
  }
  return own;
}

/**
 * The reactor for a descriptor that the caller transfers. If no reactor can be made, closes the descriptor and throws {@link KernelError}.
 */
export function reactorFor(fd: number): Reactor {
  try {
    return reactor();
  } catch (error) {
    close(fd);
    throw error;
  }
}

/**
 * Closes all streams and listeners of this thread; pending connects fail. Later streams get a new reactor. A worker thread that ends by
 * itself calls this too; a thread that is terminated leaves its descriptors to the process.
 */
export function closeReactor(): void {
  own?.close();
  own = undefined;
}
