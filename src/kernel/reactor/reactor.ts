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

/** Events of one turn; more wait for the next. */
const MAX_EVENTS = 256;
/** In one turn; more while there are new descriptors alone. To come back by the event loop costs ten times as much. */
const MAX_LOOKS = 3;
/** One read; a stream holds no more of what it reads (docs/spec/uplink-proxy.md#7). */
const READ_BYTES = 262_144;
/** Views of the shared buffer that are kept: heads, and tunnels with settings old and new, want one each. */
const MAX_ROOMS = 4;

/** Something with a descriptor that the reactor watches. None of its methods may throw. */
export interface Watched {
  readonly fd: number;
  /** The thread need not live for it. */
  readonly isBackground?: boolean;
  /** Bits of epoll events. */
  onReady(bits: number): void;
  /** The reactor ends: closes the descriptor with {@link Reactor.remove}, and never touches its number again. */
  abandon(): void;
}

/** Something that has more to do than one turn allowed. */
export interface Waiting {
  onTurn(): void;
}

/** Something that has news for its listeners. */
export interface Telling {
  /** Once for each {@link Reactor.tell}. */
  onTell(): void;
}

/** All that can happen to a connection, told once each time that it begins: no further system call for its whole life. */
export const STREAM_BITS = (EPOLL.in | EPOLL.priority | EPOLL.out | EPOLL.readHangUp | EPOLL.edgeTriggered) >>> 0;

/** The descriptors of one thread, and their turns in its event loop. */
export class Reactor {
  /** What was read last: everybody's, for the time of one call. */
  readonly #buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Beginnings of it. */
  readonly #rooms: Buffer[] = [];
  readonly #epoll = epollCreate();
  readonly #events = new EpollEvents(MAX_EVENTS);
  /** By descriptor: as long as the highest of them. */
  readonly #watched: (Watched | undefined)[] = [];
  /** By descriptor: tells an event of one that was closed meanwhile from one of the next with its number. */
  readonly #generations: number[] = [];
  #size = 0;
  /** Those of them that the thread lives for. */
  #kept = 0;
  readonly #loop: LoopWatch;
  #waiting = new Set<Waiting>();
  readonly #telling: Telling[] = [];
  #generation = 0;
  /** The next turn. */
  #next: NodeJS.Immediate | undefined;
  #isInTurn = false;
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
   * Watches until {@link remove}. The thread lives as long as anything is watched. Throws {@link KernelError}, and has closed the descriptor
   * then.
   */
  add(watched: Watched, bits: number): void {
    this.#generation = (this.#generation + 1) >>> 0;
    try {
      epollControl(this.#epoll, EPOLL_CTL.add, watched.fd, bits, [watched.fd, this.#generation]);
    } catch (error) {
      close(watched.fd);
      throw error;
    }
    // Somebody else may have closed the one before with this number.
    const before = this.#watched[watched.fd];
    if (before !== undefined) this.#count(before, -1);
    this.#watched[watched.fd] = watched;
    this.#generations[watched.fd] = this.#generation;
    this.#count(watched, 1);
    this.#standBy();
  }

  /** Another one takes the descriptor over, with its bits. */
  replace(watched: Watched): void {
    if (this.#watched[watched.fd] === undefined) throw new Error(`Reactor: descriptor ${watched.fd} is not watched`);
    this.#watched[watched.fd] = watched;
  }

  /** Other bits from now on. Nothing, once it is not watched any more: its number may be another's. */
  modify(watched: Watched, bits: number): void {
    const { fd } = watched;
    if (this.#watched[fd] === watched)
      epollControl(this.#epoll, EPOLL_CTL.modify, fd, bits, [fd, this.#generations[fd] ?? 0]);
  }

  /** Closes the descriptor. Nothing, once it is not watched any more. */
  remove(watched: Watched): void {
    const { fd } = watched;
    if (this.#watched[fd] !== watched) return;
    this.#watched[fd] = undefined;
    close(fd);
    this.#count(watched, -1);
  }

  /** One more, or one less, is watched. */
  #count(watched: Watched, by: 1 | -1): void {
    this.#size += by;
    if (watched.isBackground === true) return;
    this.#kept += by;
    if (this.#kept === (by === 1 ? 1 : 0)) this.#loop.keepAlive(by === 1);
  }

  /** A turn of its own soon, after those whose events are there already. */
  wait(waiting: Waiting): void {
    this.#waiting.add(waiting);
    this.#due();
  }

  /** Soon, and not within the call that brought the news about: before the next look for events, or at the end of the turn. */
  tell(telling: Telling): void {
    this.#telling.push(telling);
    if (!this.#isInTurn) this.#tellSoon();
  }

  /**
   * Where at most so many bytes are read to: a part of the buffer that all share. A view is dear to make, and nearly all want one of the
   * same few: those are kept, unless told otherwise.
   */
  room(bytes = READ_BYTES, options: { readonly isKept?: boolean } = {}): Buffer {
    const wanted = Math.min(bytes, READ_BYTES);
    const known = this.#rooms.find(({ length }) => length === wanted);
    if (known !== undefined) return known;
    const made = this.#buffer.subarray(0, wanted);
    if (options.isKept === false) return made;
    this.#rooms.unshift(made);
    if (this.#rooms.length > MAX_ROOMS) this.#rooms.pop();
    return made;
  }

  close(): void {
    this.#isClosed = true;
    this.#tellSoon();
    for (const watched of [...this.#watched]) watched?.abandon();
    clearImmediate(this.#next);
    this.#loop.close();
    close(this.#epoll);
  }

  /** A turn in the next round of the event loop, whatever it goes round for: it does not go round for this. */
  #standBy(): void {
    this.#next ??= setImmediate(this.#turn).unref();
  }

  /** A turn in the next round, which is at once. */
  #due(): void {
    this.#standBy();
    this.#next?.ref();
  }

  /** Work is done in immediates, so that promises settle as they do for Node's own events. */
  readonly #turn = (): void => {
    this.#next = undefined;
    if (this.#isClosed) return;
    this.#isInTurn = true;
    try {
      this.#work();
      this.#tellAll();
    } finally {
      this.#isInTurn = false;
      if (this.#size > 0 && !this.#isClosed) this.#standBy();
      if (this.#telling.length > 0) this.#tellSoon();
    }
  };

  #tellSoon(): void {
    // One that has ended has no more turns.
    if (this.#isClosed) process.nextTick(this.#tellAll);
    else this.#due();
  }

  #look(): void {
    const count = epollPoll(this.#epoll, this.#events);
    for (let at = 0; at < count; at += 1) {
      const fd = this.#events.data(at, 0);
      if (this.#generations[fd] === this.#events.data(at, 1)) this.#watched[fd]?.onReady(this.#events.bits(at));
    }
  }

  readonly #tellAll = (): void => {
    let told = 0;
    try {
      // What is told may lead to more.
      while (told < this.#telling.length) {
        told += 1;
        this.#telling[told - 1]?.onTell();
      }
    } finally {
      // Where a listener has thrown, the others still hear their news.
      this.#telling.splice(0, told);
      if (this.#telling.length > 0) this.#tellSoon();
    }
  };

  #work(): void {
    let known: number;
    let looks = 0;
    do {
      known = this.#generation;
      // What has happened is told before anything that can have come of it: who was cut off may be here again already.
      this.#tellAll();
      if (this.#isClosed) return;
      this.#look();
      looks += 1;
      // What is new may have something to say at once: a client its request, a near destination that it is connected.
    } while (this.#generation !== known && looks < MAX_LOOKS && !this.#isClosed);
    if (this.#waiting.size === 0) return;
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const one of waiting) one.onTurn();
  }
}

let own: Reactor | undefined;

/** The reactor of this thread. Throws {@link KernelError} where there is none and none can be made. */
export function reactor(): Reactor {
  if (own === undefined) {
    own = new Reactor();
    // The descriptors of a thread outlive it, and a listener would go on taking clients for nobody.
    if (!isMainThread) process.once("exit", closeReactor);
  }
  return own;
}

/** The reactor for a descriptor that somebody hands over: closes it and throws {@link KernelError} where there can be none. */
export function reactorFor(fd: number): Reactor {
  try {
    return reactor();
  } catch (error) {
    close(fd);
    throw error;
  }
}

/**
 * Closes all streams and listeners of this thread, and what is being connected fails. What is made afterwards has a reactor of its own. A
 * worker thread that ends by itself does it too; one that is terminated leaves its descriptors to the process.
 */
export function closeReactor(): void {
  own?.close();
  own = undefined;
}
