import { type Clock, systemClock } from "#base/clock";
import { type Entry, LinkedSet } from "#base/collections";
import { MUX_DEFAULTS } from "./options.ts";

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
}

/**
 * The bytes that all connections of this process may hold in queues (docs/spec/tunnel.md#8.8). Above the limit streams are not read while bytes
 * wait for their readers, for at most the grace. Those that have stood still for the grace end, and if the pause has lasted that long, those that
 * took their last byte earliest, until the limit is kept: readers first, and then those that wait for their peer.
 */
export class BufferBudget {
  readonly #maxBytes: number;
  readonly #clock: Clock;
  readonly #graceMs: number;
  readonly #sources = new Set<PausedReader>();
  readonly #streams = new Set<PausedReader>();
  readonly #unread = new LinkedSet<Standing>();
  readonly #blocked = new LinkedSet<Standing>();
  #used = 0;
  /** When the first stream was paused, `Clock.monotonic` milliseconds; `undefined` while none is. */
  #pausedAt: number | undefined;
  /** When streams were last read again: before, credit of the peer may have come and not been read. */
  #resumedAt = Number.NEGATIVE_INFINITY;
  #cancel: (() => void) | undefined;

  /** `maxBytes`: above this limit new dials fail, and reading pauses until fewer bytes are held. `graceMs`: default 10 s. */
  constructor(maxBytes: number, options: { readonly clock?: Clock; readonly graceMs?: number } = {}) {
    this.#maxBytes = maxBytes;
    this.#clock = options.clock ?? systemClock;
    this.#graceMs = options.graceMs ?? MUX_DEFAULTS.slowConsumerGraceMs;
  }

  /** Bytes held now. */
  get used(): number {
    return this.#used;
  }

  get isOver(): boolean {
    return this.#used > this.#maxBytes;
  }

  /** True if streams must not be read. Where no byte waits for a reader, a pause would give nothing back. */
  get mustPauseStreams(): boolean {
    return this.isOver && this.#unread.size > 0;
  }

  add(bytes: number): void {
    this.#used += bytes;
    if (this.isOver) this.#watch();
  }

  remove(bytes: number): void {
    this.#used -= bytes;
    if (this.isOver) return;
    this.#cancel?.();
    this.#cancel = undefined;
    wake(this.#sources);
    this.#resumeStreams();
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
    this.#cancel?.();
    this.#cancel = undefined;
    this.#watch();
  }

  /** Removes a waiting reader. */
  forget(reader: PausedReader): void {
    this.#sources.delete(reader);
    this.#streams.delete(reader);
  }

  /** From now on many bytes wait for the reader of `holder`. Its entry is to be removed when the reader takes some. */
  unread(holder: Holder): Entry {
    const entry = this.#stand(this.#unread, holder);
    return {
      remove: () => {
        entry.remove();
        if (this.#unread.size === 0) this.#resumeStreams();
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
    const entry = set.add({ holder, since: this.#clock.monotonic() });
    if (this.isOver) this.#watch();
    return entry;
  }

  /** The one that ends next, and when. */
  get #next(): { readonly standing: Standing; readonly set: LinkedSet<Standing>; readonly leftMs: number } | undefined {
    const set = this.#unread.size > 0 ? this.#unread : this.#blocked;
    const standing = set.first;
    if (standing === undefined) return undefined;
    const since =
      set === this.#unread
        ? Math.min(standing.since, this.#pausedAt ?? standing.since)
        : Math.max(standing.since, this.#resumedAt);
    return { standing, set, leftMs: since + this.#graceMs - this.#clock.monotonic() };
  }

  #resumeStreams(): void {
    if (this.#pausedAt !== undefined) this.#resumedAt = this.#clock.monotonic();
    this.#pausedAt = undefined;
    wake(this.#streams);
  }

  #watch(): void {
    if (this.#cancel !== undefined) return;
    const next = this.#next;
    if (next === undefined) return;
    this.#cancel = this.#clock.after(Math.max(0, next.leftMs), () => this.#relieve(), { unref: true });
  }

  #relieve(): void {
    this.#cancel = undefined;
    for (let next = this.#next; next !== undefined && this.isOver; next = this.#next) {
      if (next.leftMs > 0) {
        this.#watch();
        return;
      }
      next.set.shift();
      next.standing.holder.evict();
    }
    if (!this.mustPauseStreams) this.#resumeStreams();
  }
}

function wake(waiting: Set<PausedReader>): void {
  if (waiting.size === 0) return;
  const readers = [...waiting];
  waiting.clear();
  for (const reader of readers) reader.onBelowLimit();
}
