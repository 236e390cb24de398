/** A sample counts if it took at most this many times the shortest round trip. Otherwise bytes wait at a slow reader, and more would only wait longer. */
const MAX_QUEUEING = 2;
/**
 * The window grows when so many samples more have counted than not, from 0 on. On a near link between busy processes round trips differ by more
 * than {@link MAX_QUEUEING}, so that few samples count; on a far link that is used up most do, also while the processors are busy.
 */
const SAMPLES_AHEAD = 5;
/**
 * A sample counts if more than the window divided by this came within the shortest round trip. Credit comes back when half a window is due, and
 * what is over waits for the next half: of a window that is used up, hardly more than half is under way.
 */
const PARTS_OF_WINDOW = 3;

/**
 * Chooses the receive window of a session's streams, as small as the link allows: bytes under way cannot be overtaken, so that a small answer
 * waits behind a window. It measures the round trip by PINGs, one for a window of received bytes, and doubles the window when
 * in most samples more than a third of it came within the shortest round trip: then the window is what limits the peer. Pure.
 */
export class WindowTuner {
  readonly #maxBytes: number;
  #windowBytes: number;
  #shortestMs = Number.POSITIVE_INFINITY;
  #ahead = 0;
  #isMeasuring = false;
  #sentAtMs = 0;
  /** Received bytes at the last PING. */
  #sentAtBytes = 0;

  /** The window starts with `firstBytes` and grows up to `maxBytes`. */
  constructor(options: { readonly firstBytes: number; readonly maxBytes: number }) {
    this.#windowBytes = options.firstBytes;
    this.#maxBytes = options.maxBytes;
  }

  /** To be asked after each read, with the number of all received bytes. True: a PING is to be sent, and {@link sent} to be called. */
  isDue(receivedBytes: number): boolean {
    if (this.#isMeasuring || this.#windowBytes >= this.#maxBytes) return false;
    return receivedBytes - this.#sentAtBytes >= this.#windowBytes || this.#shortestMs === Number.POSITIVE_INFINITY;
  }

  /** The PING was sent. */
  sent(receivedBytes: number, nowMs: number): void {
    this.#isMeasuring = true;
    this.#sentAtMs = nowMs;
    this.#sentAtBytes = receivedBytes;
  }

  /** Its answer has come. Returns the new window if it grows. */
  answered(receivedBytes: number, nowMs: number): number | undefined {
    if (!this.#isMeasuring) return undefined;
    this.#isMeasuring = false;
    const tookMs = Math.max(0.001, nowMs - this.#sentAtMs);
    this.#shortestMs = Math.min(this.#shortestMs, tookMs);
    const perRoundTrip = ((receivedBytes - this.#sentAtBytes) * this.#shortestMs) / tookMs;
    const counts = tookMs <= MAX_QUEUEING * this.#shortestMs && PARTS_OF_WINDOW * perRoundTrip > this.#windowBytes;
    this.#ahead = Math.max(0, this.#ahead + (counts ? 1 : -1));
    if (this.#ahead < SAMPLES_AHEAD) return undefined;
    this.#ahead = 0;
    this.#windowBytes = Math.min(2 * this.#windowBytes, this.#maxBytes);
    return this.#windowBytes;
  }
}
