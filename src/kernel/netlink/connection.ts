import { type AbortOptions, Semaphore, TimeSlice } from "#base/async";
import { KernelError } from "#kernel/errors";
import { close, duplicate } from "#kernel/ffi";
import { NLM_F, NLMSG } from "./constants.ts";
import { type Ack, decodeAck, decodeDone, type NetlinkMessage } from "./message.ts";
import { NetlinkSocket } from "./socket.ts";

/** The maximum number of repetitions of a dump that the kernel marks as inconsistent (docs/spec/pod-network.md#5.4). */
const DUMP_RETRIES = 5;
/** The pause before the first repetition of a dump, microseconds; it doubles with each repetition. */
const FIRST_PAUSE_US = 200;
/** The maximum number of concurrent asynchronous requests of a connection: each holds one of the process's pool threads. */
const MAX_ASYNC_REQUESTS = 2;
/** The maximum number of changes in a datagram: their acks must fit the socket's queue, which rmem_max may limit to some 200 KiB. */
const MAX_CHANGES_TOGETHER = 256;

/** Reading a long list blocks the event loop for at most this many milliseconds at a time. */
const SLICE_MS = 5;

/** A request, with a phrase for errors that completes "Cannot …". */
export interface NetlinkRequest {
  readonly type: number;
  /** Flags in addition to NLM_F_REQUEST. */
  readonly flags?: number;
  readonly body: Uint8Array;
  /** `add route 10.0.0.0/24 via 192.0.2.1`. A function, so that the text is made only for errors. */
  readonly what: () => string;
}

/**
 * A connection to one netlink protocol in one namespace; it stays in that namespace when the thread enters another. Synchronous: an
 * ordinary request takes some 10 µs. The opener disposes it.
 */
export class NetlinkConnection implements Disposable {
  #socket: NetlinkSocket;
  readonly #namespace: number;
  readonly #protocol: number;
  readonly #maxListed: number;
  readonly #asyncSlots = new Semaphore(MAX_ASYNC_REQUESTS);
  #closed = false;

  private constructor(
    socket: NetlinkSocket,
    { namespace, protocol, maxListed }: { namespace: number; protocol: number; maxListed: number },
  ) {
    this.#socket = socket;
    this.#namespace = namespace;
    this.#protocol = protocol;
    this.#maxListed = maxListed;
  }

  /** Opens a connection inside `ns`, which need not outlive the call. `maxListed`: see {@link NetlinkConnection.dump}; default: no bound. Throws {@link KernelError}. */
  static open(
    ns: { readonly fd: number },
    protocol: number,
    { maxListed = Number.POSITIVE_INFINITY }: { readonly maxListed?: number | undefined } = {},
  ): NetlinkConnection {
    const namespace = duplicate(ns.fd);
    try {
      const socket = NetlinkSocket.open({ fd: namespace }, protocol);
      return new NetlinkConnection(socket, { namespace, protocol, maxListed });
    } catch (error) {
      close(namespace);
      throw error;
    }
  }

  /**
   * A descriptor of the namespace, owned by this connection: to be read for each use, since its number may be another namespace's after the disposal. Throws
   * {@link KernelError} `failed` then.
   */
  get namespaceFd(): number {
    if (this.#closed) throw new KernelError("failed", "Cannot use a netlink connection after it was disposed");
    return this.#namespace;
  }

  /** True if the kernel applies dump filters. If false, dumps have all objects. Callers filter the result in both cases. */
  get strict(): boolean {
    return this.#socket.strict;
  }

  /** Makes a change and waits for its ack. Throws {@link KernelError} with the kernel's text. */
  change(request: NetlinkRequest): void {
    this.#exchange(this.#socket, request, NLM_F.ACK, () => undefined);
  }

  /** Requests one object and decodes the answer. Throws {@link KernelError}. */
  get<T>(request: NetlinkRequest, decode: (message: NetlinkMessage) => T): T {
    const found: T[] = [];
    this.#exchange(this.#socket, request, NLM_F.ACK, (message) => found.push(decode(message)));
    const [first] = found;
    if (first === undefined)
      throw new KernelError("failed", `Cannot ${request.what()}: the kernel sent an empty answer`);
    return first;
  }

  /**
   * Lists objects. `decode` sees each message while its bytes are valid, and returns `undefined` to leave it out. A list
   * that changed while it was read is read again; throws {@link KernelError} `interrupted` if it changes in each try, and `failed` when the kernel sends more than
   * `maxListed` objects.
   */
  dump<T>(request: NetlinkRequest, decode: (message: NetlinkMessage) => T | undefined): T[] {
    for (let attempt = 0; ; attempt += 1) {
      const found: T[] = [];
      if (this.#dumpOnce(request, decode, found)) return found;
      if (attempt === DUMP_RETRIES) {
        throw new KernelError(
          "interrupted",
          `Cannot ${request.what()}: the list changed while it was read, ${DUMP_RETRIES + 1} times`,
        );
      }
      pauseSync(FIRST_PAUSE_US * 2 ** attempt);
    }
  }

  /**
   * As {@link NetlinkConnection.dump}, once, on a socket of its own, for lists that take long: the event loop runs every few milliseconds.
   * An object that changes meanwhile may be in the result or not. The signal has an effect between slices. With `isSparse` the kernel works on threads of
   * the pool: it may look through many objects for each one that it sends. The rest of the list is left unread once `isEnough` returns true, which is asked after each
   * datagram.
   */
  async dumpInSlices<T>(
    request: NetlinkRequest,
    decode: (message: NetlinkMessage) => T | undefined,
    {
      signal,
      isSparse = false,
      isEnough = () => false,
    }: AbortOptions & { readonly isSparse?: boolean; readonly isEnough?: () => boolean } = {},
  ): Promise<T[]> {
    const options = { signal, isSparse, isEnough };
    if (!isSparse) return await this.#dumpSlices(request, decode, options);
    return await this.#asyncSlots.run(() => this.#dumpSlices(request, decode, options), { signal });
  }

  async #dumpSlices<T>(
    request: NetlinkRequest,
    decode: (message: NetlinkMessage) => T | undefined,
    { signal, isSparse, isEnough }: AbortOptions & { readonly isSparse: boolean; readonly isEnough: () => boolean },
  ): Promise<T[]> {
    // On an error or an abort, and when it is enough, this closes the socket with the rest of the dump unread.
    using socket = NetlinkSocket.open({ fd: this.namespaceFd }, this.#protocol);
    const raw = { ...request, flags: flagsOf(request) | NLM_F.DUMP };
    const sequence = isSparse
      ? await socket.sendAsync(raw, request.what())
      : socket.send(raw.type, raw.flags, raw.body);
    const found: T[] = [];
    for (const slice = new TimeSlice({ lengthMs: SLICE_MS }); ; ) {
      const messages = isSparse
        ? await socket.receiveAsync(sequence, request.what)
        : socket.receive(sequence, request.what);
      for (const message of messages) {
        if (message.type === NLMSG.DONE || message.type === NLMSG.ERROR) {
          check(message.type === NLMSG.DONE ? decodeDone(message) : decodeAck(message), request.what);
          return found;
        }
        const object = decode(message);
        if (object !== undefined) found.push(object);
      }
      if (isEnough()) return found;
      if (slice.isOver) await slice.yield();
      signal?.throwIfAborted();
    }
  }

  /**
   * As {@link NetlinkConnection.change}, on a socket and a pool thread of its own, for changes on which the kernel works
   * for milliseconds. The signal has an effect until the request is sent; after that this waits for the result.
   */
  async changeAsync(request: NetlinkRequest, options: AbortOptions = {}): Promise<void> {
    const [error] = await this.changeAllAsync([request], options);
    if (error !== undefined) throw error;
  }

  /**
   * As {@link NetlinkConnection.changeAsync} for 1 to 256 changes in one datagram: the kernel makes them in order, even if earlier changes
   * fail. Resolves to the errors, in the same order, `undefined` for success. Rejects with {@link KernelError} if they cannot be sent, or
   * an answer is missing.
   */
  async changeAllAsync(
    requests: readonly NetlinkRequest[],
    options: AbortOptions = {},
  ): Promise<(KernelError | undefined)[]> {
    const what = `${requests[0]?.what()}${requests.length > 1 ? ` and ${requests.length - 1} others` : ""}`;
    if (requests.length < 1 || requests.length > MAX_CHANGES_TOGETHER) {
      throw new KernelError("invalid", `Cannot ${what} together: use 1 to ${MAX_CHANGES_TOGETHER} changes`);
    }
    return this.#asyncSlots.run(async () => {
      options.signal?.throwIfAborted();
      using socket = NetlinkSocket.open({ fd: this.namespaceFd }, this.#protocol);
      const raw = requests.map((request) => ({ ...request, flags: flagsOf(request) | NLM_F.ACK }));
      const sequences = await socket.sendAllAsync(raw, what);
      // Each ack is a datagram of its own, in the order of the requests.
      const acks = requests.map(({ what: each }, at) => readAnswer(socket, sequences[at] ?? 0, each, () => undefined));
      return requests.map((request, at) => failureOf(acks[at], request.what));
    }, options);
  }

  #exchange(
    socket: NetlinkSocket,
    request: NetlinkRequest,
    flags: number,
    each: (message: NetlinkMessage) => void,
  ): void {
    const sequence = socket.send(request.type, flagsOf(request) | flags, request.body);
    check(readAnswer(socket, sequence, request.what, each), request.what);
  }

  /** False when the dump was interrupted. */
  #dumpOnce<T>(request: NetlinkRequest, decode: (message: NetlinkMessage) => T | undefined, into: T[]): boolean {
    const sequence = this.#socket.send(request.type, flagsOf(request) | NLM_F.DUMP, request.body);
    let consistent = true;
    let seen = 0;
    let failure: { readonly error: unknown } | undefined;
    for (let done = false; !done; ) {
      for (const message of this.#socket.receive(sequence, request.what)) {
        seen += 1;
        if (seen > this.#maxListed && message.type !== NLMSG.DONE) this.#giveUp(request.what);
        if ((message.flags & NLM_F.DUMP_INTR) !== 0) consistent = false;
        if (message.type === NLMSG.DONE || message.type === NLMSG.ERROR) {
          done = true;
          check(message.type === NLMSG.DONE ? decodeDone(message) : decodeAck(message), request.what);
        } else if (failure === undefined) {
          // A dump must always be read to its end: while one runs the kernel refuses the next (EBUSY).
          failure = attempt(() => {
            const object = decode(message);
            if (object !== undefined) into.push(object);
          });
        }
      }
    }
    if (failure !== undefined) throw failure.error;
    return consistent;
  }

  /** Ends a dump that is too long with its socket, since another one would be refused until its end, and throws. */
  #giveUp(what: () => string): never {
    this.#socket[Symbol.dispose]();
    this.#socket = NetlinkSocket.open({ fd: this.namespaceFd }, this.#protocol);
    throw new KernelError("failed", `Cannot ${what()}: there are more than ${this.#maxListed}`);
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
    if (!this.#closed) close(this.#namespace);
    this.#closed = true;
  }
}

function flagsOf(request: NetlinkRequest): number {
  return NLM_F.REQUEST | (request.flags ?? 0);
}

/** Reads up to the ack, which ends every answer except that to a dump. */
function readAnswer(
  socket: NetlinkSocket,
  sequence: number,
  what: () => string,
  each: (message: NetlinkMessage) => void,
): Ack {
  for (;;) {
    let ack: Ack | undefined;
    for (const message of socket.receive(sequence, what)) {
      if (message.type === NLMSG.ERROR) ack = decodeAck(message);
      else each(message);
    }
    if (ack !== undefined) return ack;
  }
}

function check(ack: Ack, what: () => string): void {
  const failure = failureOf(ack, what);
  if (failure !== undefined) throw failure;
}

function failureOf(ack: Ack | undefined, what: () => string): KernelError | undefined {
  return ack === undefined || ack.errno === 0 ? undefined : KernelError.fromErrno(ack.errno, what(), ack.text);
}

function attempt(work: () => void): { readonly error: unknown } | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return { error };
  }
}

/** Blocks the thread: dumps are synchronous and the pause is at most 6.4 ms. */
function pauseSync(microseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, microseconds / 1000);
}
