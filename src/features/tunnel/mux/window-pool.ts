import type { Clock } from "#base/clock";
import { type Entry, LinkedSet } from "#base/collections";

/** A reservation that was not used for so long, in milliseconds, is lost to others that need it. */
export const IDLE_MS = 30_000;
/** The pool is short while less than this part of it is free. */
const SHORT_PART = 1 / 4;

/**
 * The bytes by which all receive windows of this process together may exceed their bounds for near links (docs/spec/tunnel.md#8.3). A window is a promise to hold as much: many readers of
 * far links that stand still must not fill what all connections may hold.
 */
export class WindowPool {
  readonly #maxBytes: number;
  readonly #clock: Pick<Clock, "monotonic">;
  /** The one that was used last is the last one. */
  readonly #reservations = new LinkedSet<Reservation>();
  #taken = 0;

  constructor(maxBytes: number, clock: Pick<Clock, "monotonic">) {
    this.#maxBytes = maxBytes;
    this.#clock = clock;
  }

  /** Reserved bytes. At most as many as the pool has. */
  get taken(): number {
    return this.#taken;
  }

  /** True if windows that are larger than they need to be should become smaller. */
  get isShort(): boolean {
    return this.#maxBytes - this.#taken < SHORT_PART * this.#maxBytes;
  }

  /** A reservation of nothing, for one window. `onLost` is called when others get what it had. */
  reservation(onLost: () => void = () => undefined): Reservation {
    return new Reservation(this, onLost);
  }

  /** For a reservation: takes bytes. Returns false, and changes nothing, if there are too few. */
  take(bytes: number): boolean {
    if (bytes > this.#maxBytes) return false;
    while (this.#maxBytes - this.#taken < bytes) {
      const oldest = this.#reservations.first;
      if (oldest === undefined || this.#clock.monotonic() - oldest.usedAt < IDLE_MS) return false;
      oldest.lose();
    }
    this.#taken += bytes;
    return true;
  }

  /** For a reservation: gives bytes back. */
  give(bytes: number): void {
    this.#taken -= bytes;
  }

  /** For a reservation: it is in use. */
  used(reservation: Reservation): Entry {
    reservation.usedAt = this.#clock.monotonic();
    return this.#reservations.add(reservation);
  }
}

/** The share of one window in a {@link WindowPool}. A window that is not used for {@link IDLE_MS} may lose its whole share. */
export class Reservation {
  /** For the pool: when it was last used, `Clock.monotonic` milliseconds. */
  usedAt = 0;
  readonly #pool: WindowPool;
  readonly #onLost: () => void;
  #bytes = 0;
  #entry: Entry | undefined;

  constructor(pool: WindowPool, onLost: () => void) {
    this.#pool = pool;
    this.#onLost = onLost;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isPoolShort(): boolean {
    return this.#pool.isShort;
  }

  /** Returns false, and changes nothing, if the pool has too little. */
  grow(bytes: number): boolean {
    // While it asks, it does not lose what it has.
    this.touch();
    if (!this.#pool.take(bytes)) return false;
    this.#bytes += bytes;
    this.touch();
    return true;
  }

  /** Gives bytes back; more than it has count as what it has. */
  shrink(bytes: number): void {
    const given = Math.min(bytes, this.#bytes);
    this.#bytes -= given;
    this.#pool.give(given);
    if (this.#bytes === 0) this.#leave();
  }

  /** It is in use. */
  touch(): void {
    if (this.#bytes === 0) return;
    this.#entry?.remove();
    this.#entry = this.#pool.used(this);
  }

  /** Gives everything back. Idempotent. */
  release(): void {
    this.shrink(this.#bytes);
  }

  /** For the pool: others need it. */
  lose(): void {
    this.release();
    this.#onLost();
  }

  #leave(): void {
    this.#entry?.remove();
    this.#entry = undefined;
  }
}
