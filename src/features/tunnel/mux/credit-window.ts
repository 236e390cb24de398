import { FAR_ROUND_TRIP_MS, INITIAL_WINDOW_BYTES, MAX_WINDOW_BYTES, NEAR_WINDOW_BYTES } from "./options.ts";
import type { Reservation, WindowPool } from "./window-pool.ts";

/** Shortest time over which bytes are counted, in milliseconds: a burst of one turn of the event loop says nothing about a rate. */
const MIN_COUNT_MS = 5;
/** The window grows while this many times what the reader takes in a round trip is more than it: a lost packet stops what comes for a round trip. */
const ROUND_TRIPS = 2;
/** If room is short, a window that is more than this many times what the reader takes in a round trip becomes smaller. */
const SPARE_ROUND_TRIPS = 4;

/** The state of the link at the moment when the reader has taken bytes. */
export interface CreditMoment {
  /** Received bytes that the reader has not taken. */
  readonly heldBytes: number;
  /** The process holds too many bytes: nothing grows. */
  readonly isOver: boolean;
  /** The link's round trip without load, in milliseconds, if it is known. */
  readonly roundTripMs: number | undefined;
  /** `Clock.monotonic`. */
  readonly now: () => number;
}

/**
 * The receive window of one connection, and the credit of its peer (docs/spec/tunnel.md#8.3). On a near link it grows up to 1 MiB while the reader keeps up. On a far one it grows up to 16 MiB
 * while it is what limits the peer: the bytes that the reader takes in a round trip are then about the window. What it has above 1 MiB it has from a pool, and gives it back where the pool is
 * short and the reader takes less. No timer, no I/O.
 */
export class CreditWindow {
  readonly #pool: WindowPool;
  #windowBytes = INITIAL_WINDOW_BYTES;
  /** Number of bytes that were taken and not yet returned as credit. */
  #owed = 0;
  #sinceGrowth = 0;
  /** The part of the window above {@link NEAR_WINDOW_BYTES}; absent until there is one. */
  #reservation: Reservation | undefined;
  /** The time since which bytes are counted, and their number. */
  #countedFrom = 0;
  #counted = 0;
  /** The bytes that the reader took in a round trip, by the last count. */
  #perRoundTrip = 0;

  constructor(pool: WindowPool) {
    this.#pool = pool;
  }

  get windowBytes(): number {
    return this.#windowBytes;
  }

  /** Returns the number of bytes that the peer may still send. `heldBytes`: received bytes that the reader has not taken. */
  creditOf(heldBytes: number): number {
    return this.#windowBytes - heldBytes - this.#owed;
  }

  /** True if more is held than what this window has reserved: the peer has used credit that others have by now. */
  isBeyond(heldBytes: number): boolean {
    return heldBytes > NEAR_WINDOW_BYTES + (this.#reservation?.bytes ?? 0);
  }

  /** The reader has taken bytes. Returns the credit to return now, in bytes; 0: none yet. */
  taken(bytes: number, moment: CreditMoment): number {
    this.#owed += bytes;
    this.#sinceGrowth += bytes;
    const { roundTripMs } = moment;
    const isFar = roundTripMs !== undefined && roundTripMs >= FAR_ROUND_TRIP_MS;
    if (isFar && this.#windowBytes >= NEAR_WINDOW_BYTES) this.#count(bytes, roundTripMs, moment.now());
    if (this.#owed * 4 < this.#windowBytes) return 0;
    this.#withhold();
    const credit = this.#owed + this.#growth(moment, isFar);
    this.#owed = 0;
    return credit;
  }

  /** The connection has ended. Idempotent. */
  release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }

  #count(bytes: number, roundTripMs: number, now: number): void {
    this.#counted += bytes;
    const tookMs = now - this.#countedFrom;
    if (tookMs < Math.max(roundTripMs, MIN_COUNT_MS)) return;
    this.#perRoundTrip = (this.#counted * roundTripMs) / tookMs;
    this.#countedFrom = now;
    this.#counted = 0;
  }

  /** Makes the window smaller by credit that is not returned, where others need the room or have it already. */
  #withhold(): void {
    const reservation = this.#reservation;
    if (reservation === undefined) return;
    reservation.touch();
    const lost = this.#windowBytes - NEAR_WINDOW_BYTES - reservation.bytes;
    if (lost > 0 && !reservation.grow(lost)) this.#shrink(lost);
    if (!reservation.isPoolShort) return;
    this.#shrink(this.#windowBytes - Math.max(NEAR_WINDOW_BYTES, SPARE_ROUND_TRIPS * this.#perRoundTrip));
  }

  #shrink(bytes: number): void {
    const less = Math.min(Math.floor(bytes), this.#owed, this.#windowBytes - NEAR_WINDOW_BYTES);
    if (less <= 0) return;
    this.#windowBytes -= less;
    this.#owed -= less;
    const excess = (this.#reservation?.bytes ?? 0) - (this.#windowBytes - NEAR_WINDOW_BYTES);
    if (excess > 0) this.#reservation?.shrink(excess);
  }

  /** Lets the window grow if that is due. Returns by how much it has grown. */
  #growth({ heldBytes, isOver }: CreditMoment, isFar: boolean): number {
    // If this side is slow, a larger window would only make it hold more bytes.
    const keepsUp = heldBytes * 4 < this.#windowBytes && this.#sinceGrowth >= this.#windowBytes;
    if (!keepsUp || isOver || this.#windowBytes >= MAX_WINDOW_BYTES) return 0;
    const more = Math.min(this.#windowBytes, MAX_WINDOW_BYTES - this.#windowBytes);
    if (this.#windowBytes >= NEAR_WINDOW_BYTES) {
      if (!isFar || ROUND_TRIPS * this.#perRoundTrip <= this.#windowBytes) return 0;
      this.#reservation ??= this.#pool.reservation();
      if (!this.#reservation.grow(more)) return 0;
    }
    this.#windowBytes += more;
    this.#sinceGrowth = 0;
    return more;
  }
}
