/** A sample counts if it took at most this many times the shortest round trip. Otherwise bytes wait at a slow reader, and more would only wait longer. */
const MAX_QUEUEING = 2;
/**
 * The window grows when so many samples more have counted than not, from 0 on. On a near link between busy processes round trips differ by more
 * than {@link MAX_QUEUEING}, so that few samples count; on a far link that is used up most do, also while the processors are busy.
 */
const SAMPLES_AHEAD = 5;
/** On a link whose shortest round trip is at least this, in milliseconds, busy processors make less of it: each sample counts for itself. */
const FAR_MS = 5;
/** A far link is measured again when the window divided by this has come: each round trip, if the window limits the peer. */
const PARTS_BETWEEN = 4;
/**
 * A sample counts if more than the window divided by this came within the shortest round trip. Credit comes back when half a window is due, and
 * what is over waits for the next half: of a window that is used up, hardly more than half is under way.
 */
const PARTS_OF_WINDOW = 3;

/** On a far link the window that limits the peer becomes so many times what came in a round trip. */
const FAR_GROWTH = 3.5;
/** A rate rises if it is this many times the highest before. */
const RISE = 1.1;
/** A window's worth is this part of it: the rest is on its way back as credit. */
const FULL_PART = 2 / 3;

/**
 * Chooses the receive window of a session's streams, as small as the link allows: bytes under way cannot be overtaken, so that a small answer
 * waits behind a window. It measures the round trip by PINGs, one for a window of received bytes, and doubles the window when
 * in most samples more than a third of it came within the shortest round trip: then the window is what limits the peer. Pure.
 */
export class WindowTuner {
  readonly #maxBytes: number;
  readonly #mayGrow: (moreBytes: number, toBytes: number) => boolean;
  #windowBytes: number;
  #shortestMs = Number.POSITIVE_INFINITY;
  #ahead = 0;
  #isMeasuring = false;
  /** The highest rate of a sample in which a window's worth came, in bytes a millisecond. */
  #bestRate = 0;
  #sentAtMs = 0;
  /** Received bytes at the last PING. */
  #sentAtBytes = 0;
  /** Received bytes at which the next one is due. */
  #dueAtBytes = 0;

  /** The window starts with `firstBytes` and grows up to `maxBytes`. `mayGrow` is asked before it does; default: it may. */
  constructor(options: {
    readonly firstBytes: number;
    readonly maxBytes: number;
    readonly mayGrow?: (moreBytes: number, toBytes: number) => boolean;
  }) {
    this.#windowBytes = options.firstBytes;
    this.#maxBytes = options.maxBytes;
    this.#mayGrow = options.mayGrow ?? (() => true);
  }

  /** The shortest round trip, in milliseconds; `undefined` before the first. */
  get roundTripMs(): number | undefined {
    return this.#shortestMs === Number.POSITIVE_INFINITY ? undefined : this.#shortestMs;
  }

  get #isFar(): boolean {
    return this.#shortestMs >= FAR_MS && this.#shortestMs !== Number.POSITIVE_INFINITY;
  }

  /** On a far link: whether a window's worth comes faster than ever. TCP is still about to find its rate, and a window that waits for it would hold it up at every step. */
  #isRising(bytes: number, tookMs: number): boolean {
    if (!this.#isFar || bytes < FULL_PART * this.#windowBytes) return false;
    const rate = bytes / tookMs;
    const before = this.#bestRate;
    this.#bestRate = Math.max(before, rate);
    return before > 0 && rate > RISE * before;
  }

  /** To be asked after each read, with the number of all received bytes. True: a PING is to be sent, and {@link sent} to be called. */
  isDue(receivedBytes: number): boolean {
    if (this.#isMeasuring || this.#windowBytes >= this.#maxBytes) return false;
    if (this.#shortestMs === Number.POSITIVE_INFINITY) return true;
    return receivedBytes >= this.#dueAtBytes;
  }

  /** The window was made smaller; it may grow again. */
  shrunk(windowBytes: number): void {
    this.#windowBytes = Math.min(this.#windowBytes, windowBytes);
    this.#ahead = 0;
  }

  /** The PING was sent. */
  sent(receivedBytes: number, nowMs: number): void {
    this.#isMeasuring = true;
    this.#sentAtMs = nowMs;
    this.#sentAtBytes = receivedBytes;
    this.#dueAtBytes = receivedBytes + this.#windowBytes / (this.#isFar ? PARTS_BETWEEN : 1);
  }

  /** Its answer has come. Returns the new window if it grows. */
  answered(receivedBytes: number, nowMs: number): number | undefined {
    if (!this.#isMeasuring) return undefined;
    this.#isMeasuring = false;
    const tookMs = Math.max(0.001, nowMs - this.#sentAtMs);
    this.#shortestMs = Math.min(this.#shortestMs, tookMs);
    const perRoundTrip = ((receivedBytes - this.#sentAtBytes) * this.#shortestMs) / tookMs;
    const isUsed = tookMs <= MAX_QUEUEING * this.#shortestMs && PARTS_OF_WINDOW * perRoundTrip > this.#windowBytes;
    const counts = isUsed || this.#isRising(receivedBytes - this.#sentAtBytes, tookMs);
    this.#ahead = Math.max(0, this.#ahead + (counts ? 1 : -1));
    if (this.#ahead < (this.#isFar ? 1 : SAMPLES_AHEAD)) return undefined;
    this.#ahead = 0;
    // Where all of the window came in a round trip, the link may hold much more.
    const far = this.#isFar && isUsed ? Math.floor(FAR_GROWTH * perRoundTrip) : 0;
    const wanted = Math.min(Math.max(2 * this.#windowBytes, far), this.#maxBytes);
    if (!this.#mayGrow(wanted - this.#windowBytes, wanted)) return undefined;
    // What it does is seen a round trip later: so much came in one before it grew.
    this.#dueAtBytes = Math.max(this.#dueAtBytes, receivedBytes + this.#windowBytes);
    this.#windowBytes = wanted;
    return wanted;
  }
}
