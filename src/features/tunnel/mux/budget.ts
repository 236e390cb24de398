import { type Clock, systemClock } from "#base/clock";
import { type Entry, LinkedSet } from "#base/collections";
import { ALL_SEND_QUEUES_BYTES, MIN_SEND_QUEUE_BYTES, MUX_DEFAULTS, SEND_QUEUE_BYTES, WINDOW_PART } from "./options.ts";
import { WindowPool } from "./window-pool.ts";

/** A holder of fewer bytes is not ended: there is little to gain. */
export const MIN_EVICTED_BYTES = 16 * 1024;

/** A reader that is paused because the process holds too many bytes. */
export interface PausedReader {
  /** The process holds fewer bytes than its limit. */
  onBelowLimit(): void;
}

/** Something that holds many bytes and waits: a connection for its reader or for its link, a stream for the rest of a message. */
export interface Holder {
  /** Ends the holder, so that it holds nothing. Called above the limit, when the holder has made no progress for the grace. */
  evict(): void;
}

interface Standing {
  readonly holder: Holder;
  /** `Clock.monotonic` milliseconds. */
  readonly since: number;
  /** For how long streams had been paused until then, in milliseconds. */
  readonly pausedMs: number;
}

/** Streams are paused while at least this part of the limit waits for readers, and until half of that waits. Otherwise a pause gives too little back. */
const PAUSED_PART = 1 / 8;

/**
 * The bytes that all connections of this process may hold in queues (docs/spec/tunnel.md#8.8). Above the limit streams are not read while many bytes
 * wait for their readers, for at most the grace. Those that have stood still for the grace end, and if the pause has lasted that long, those that
 * took their last byte earliest, until the limit is kept: readers first, and then those that wait for their peer. The time of a pause does not count for
 * these: the peer's credit may have come and not been read.
 */
export class BufferBudget {
  readonly #maxBytes: number;
  readonly #clock: Clock;
  readonly #graceMs: number;
  /** The part of the budget that receive windows may use beyond the windows of near links. */
  readonly windows: WindowPool;
  readonly #sources = new Set<PausedReader>();
  readonly #streams = new Set<PausedReader>();
  readonly #unread = new LinkedSet<Standing>();
  readonly #blocked = new LinkedSet<Standing>();
  /** Number of connections with bytes that wait to be sent. */
  #sending = 0;
  #used = 0;
  #unreadBytes = 0;
  /** When the first stream was paused, `Clock.monotonic` milliseconds; `undefined` while none is. */
  #pausedAt: number | undefined;
  /** The time for which the earlier pauses were together, in milliseconds. */
  #pausedMs = 0;
  #cancel: (() => void) | undefined;

  /** `maxBytes`: above this limit new dials fail, and reading pauses until fewer bytes are held. `graceMs`: default 10 s. */
  constructor(maxBytes: number, options: { readonly clock?: Clock; readonly graceMs?: number } = {}) {
    this.#maxBytes = maxBytes;
    this.#clock = options.clock ?? systemClock;
    this.#graceMs = options.graceMs ?? MUX_DEFAULTS.slowConsumerGraceMs;
    this.windows = new WindowPool(WINDOW_PART * maxBytes, this.#clock);
  }

  /** Bytes held now. */
  get used(): number {
    return this.#used;
  }

  get isOver(): boolean {
    return this.#used > this.#maxBytes;
  }

  /** True if streams must not be read. Where few bytes wait for readers, a pause would give nothing back. */
  get mustPauseStreams(): boolean {
    if (!this.isOver || this.#unread.size === 0) return false;
    const part = this.#pausedAt === undefined ? PAUSED_PART : PAUSED_PART / 2;
    return this.#unreadBytes >= part * this.#maxBytes;
  }

  /** The number of bytes that may be read from the source of one connection ahead of its link. The number is smaller while many connections have bytes that wait to be sent. */
  get sendQueueBytes(): number {
    const share = ALL_SEND_QUEUES_BYTES / Math.max(1, this.#sending);
    return Math.min(SEND_QUEUE_BYTES, Math.max(MIN_SEND_QUEUE_BYTES, share));
  }

  /** Bytes of a connection begin to wait to be sent, or none of it does any more. */
  sending(change: 1 | -1): void {
    this.#sending += change;
  }

  add(bytes: number): void {
    this.#used += bytes;
    if (this.isOver) this.#watch();
  }

  remove(bytes: number): void {
    this.#used -= bytes;
    if (!this.isOver) {
      this.#cancel?.();
      this.#cancel = undefined;
      wake(this.#sources);
    }
    this.#checkStreams();
  }

  /** Does what {@link add} does, for bytes that wait for a reader. */
  addUnread(bytes: number): void {
    this.#unreadBytes += bytes;
    this.add(bytes);
  }

  /** Removes bytes that {@link addUnread} has added. */
  removeUnread(bytes: number): void {
    this.#unreadBytes -= bytes;
    this.remove(bytes);
  }

  /** Calls `onBelowLimit` once, when the process holds no more than `maxBytes`. Each paused reader waits here once. */
  whenBelowLimit(reader: PausedReader): void {
    this.#sources.add(reader);
  }

  /** Calls `onBelowLimit` once, when {@link mustPauseStreams} is false again. */
  whenStreamsMayBeRead(stream: PausedReader): void {
    this.#streams.add(stream);
    if (this.#pausedAt !== undefined) return;
    this.#pausedAt = this.#clock.monotonic();
    this.#watchAnew();
  }

  /** Removes a waiting reader. */
  forget(reader: PausedReader): void {
    this.#sources.delete(reader);
    if (this.#streams.delete(reader) && this.#streams.size === 0) this.#resumeStreams();
  }

  /** From now on many bytes wait for the reader of `holder`. Its entry is to be removed when the reader takes some. */
  unread(holder: Holder): Entry {
    const entry = this.#stand(this.#unread, holder);
    return {
      remove: () => {
        entry.remove();
        this.#checkStreams();
      },
    };
  }

  /**
   * From now on many bytes of `holder` wait for the peer: to be sent, or for the rest of their message. The entry is to be removed when some have gone, or
   * the peer is not to blame.
   */
  blocked(holder: Holder): Entry {
    return this.#stand(this.#blocked, holder);
  }

  #stand(set: LinkedSet<Standing>, holder: Holder): Entry {
    const now = this.#clock.monotonic();
    const entry = set.add({ holder, since: now, pausedMs: this.#allPausedMs(now) });
    if (this.isOver) this.#watch();
    return entry;
  }

  #allPausedMs(now: number): number {
    return this.#pausedMs + (this.#pausedAt === undefined ? 0 : now - this.#pausedAt);
  }

  /** The one that ends next, and when. */
  get #next(): { readonly set: LinkedSet<Standing>; readonly leftMs: number } | undefined {
    const now = this.#clock.monotonic();
    const [reader, peer] = [this.#unread.first, this.#blocked.first];
    const never = Number.POSITIVE_INFINITY;
    const readerMs =
      reader === undefined ? never : Math.min(reader.since, this.#pausedAt ?? reader.since) + this.#graceMs - now;
    const waitedMs = peer === undefined ? 0 : now - peer.since - (this.#allPausedMs(now) - peer.pausedMs);
    const isPaused = this.#pausedAt !== undefined && waitedMs < this.#graceMs;
    const peerMs = peer === undefined || isPaused ? never : this.#graceMs - waitedMs;
    if (readerMs === never && peerMs === never) return undefined;
    const isReader = readerMs <= Math.max(0, peerMs);
    return isReader ? { set: this.#unread, leftMs: readerMs } : { set: this.#blocked, leftMs: peerMs };
  }

  #checkStreams(): void {
    if (this.#pausedAt !== undefined && !this.mustPauseStreams) this.#resumeStreams();
  }

  #resumeStreams(): void {
    this.#pausedMs = this.#allPausedMs(this.#clock.monotonic());
    this.#pausedAt = undefined;
    if (this.isOver) this.#watchAnew();
    wake(this.#streams);
  }

  #watchAnew(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#watch();
  }

  #watch(): void {
    if (this.#cancel !== undefined) return;
    const next = this.#next;
    if (next === undefined) return;
    this.#cancel = this.#clock.after(Math.max(0, next.leftMs), () => this.#relieve(), { unref: true });
  }

  #relieve(): void {
    this.#cancel = undefined;
    for (let next = this.#next; this.isOver && next !== undefined && next.leftMs <= 0; next = this.#next) {
      next.set.shift()?.holder.evict();
    }
    this.#checkStreams();
    if (this.isOver) this.#watch();
  }
}

function wake(waiting: Set<PausedReader>): void {
  if (waiting.size === 0) return;
  const readers = [...waiting];
  waiting.clear();
  for (const reader of readers) reader.onBelowLimit();
}
