import type { Clock } from "#base/clock";
import type { Session } from "../http2/session.ts";

/** The time to wait for the answer to a PING, as in Go, in milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/** A peer that has sent nothing for so long, in milliseconds, is silent. */
const HEARD_MS = 1000;

/** The time for which a dial that is given up must have waited before its silence means anything, in milliseconds: as long as an agent dials. */
const SILENCE_MS = 5000;

/** Signs of life of the peer of a session. */
export interface Pulse {
  /** Bytes that the peer has sent. If two values are equal, it was silent in between. */
  readonly bytesRead: number;
  /** True while a PING waits for an answer: no byte has come since. */
  readonly isInDoubt: boolean;
  /** Sends a PING at once, unless one waits. If no byte comes within 20 s of it, the session ends. */
  probe(): void;
  /** Does what {@link probe} does, unless a byte has come within the last second. */
  probeIfSilent(): void;
}

/**
 * Sends a PING to a peer that was silent for `idleMs`, measured from its last byte; 0: only by {@link Pulse.probe}. If no byte comes within
 * 20 s of the PING, destroys the session. Stops when the session ends.
 */
export function keepAlive(session: Session, options: { readonly idleMs: number; readonly clock: Clock }): Pulse {
  return new KeepAlive(session, options);
}

class KeepAlive implements Pulse {
  readonly #session: Session;
  readonly #idleMs: number;
  readonly #clock: Clock;
  #lastReadAt: number;
  #isPingSent = false;
  #cancel: (() => void) | undefined;

  constructor(session: Session, { idleMs, clock }: { readonly idleMs: number; readonly clock: Clock }) {
    this.#session = session;
    this.#idleMs = idleMs;
    this.#clock = clock;
    this.#lastReadAt = clock.monotonic();
    session.whenRead(() => this.#heard());
    session.whenClosed(() => this.#cancel?.());
    this.#watch(idleMs);
  }

  get bytesRead(): number {
    return this.#session.bytesRead;
  }

  get isInDoubt(): boolean {
    return this.#isPingSent;
  }

  probe(): void {
    if (this.#isPingSent || this.#session.isDestroyed) return;
    this.#cancel?.();
    this.#isPingSent = true;
    // The answer is read from the socket, which counts as a byte of the peer.
    if (this.#session.ping()) this.#after(PING_TIMEOUT_MS, () => this.#session.destroy());
    else this.#session.destroy();
  }

  probeIfSilent(): void {
    if (this.#clock.monotonic() - this.#lastReadAt >= HEARD_MS) this.probe();
  }

  #heard(): void {
    this.#lastReadAt = this.#clock.monotonic();
    if (!this.#isPingSent) return;
    this.#isPingSent = false;
    this.#cancel?.();
    this.#watch(this.#idleMs);
  }

  #watch(leftMs: number): void {
    if (this.#idleMs > 0) this.#after(leftMs, () => this.#check());
  }

  #check(): void {
    const leftMs = this.#lastReadAt + this.#idleMs - this.#clock.monotonic();
    if (leftMs > 0) this.#watch(leftMs);
    else this.probe();
  }

  #after(delayMs: number, callback: () => void): void {
    this.#cancel = this.#clock.after(delayMs, callback, { unref: true });
  }
}

/** The wait for the answer to one dial over a link, from DIAL_REQ on. */
export class DialWait {
  readonly #pulse: Pulse;
  readonly #clock: Clock;
  readonly #readBefore: number;
  readonly #startedAt: number;

  constructor(pulse: Pulse, clock: Clock) {
    this.#pulse = pulse;
    this.#clock = clock;
    this.#readBefore = pulse.bytesRead;
    this.#startedAt = clock.monotonic();
  }

  /** The dial has timed out. If the peer has sent no byte since it, it is probed. */
  timedOut(): void {
    if (this.#pulse.bytesRead === this.#readBefore) this.#pulse.probe();
  }

  /** The dial was given up before its time-out. The peer is probed if it has sent no byte since, for 5 s at least. */
  givenUp(): void {
    if (this.#clock.monotonic() - this.#startedAt >= SILENCE_MS) this.timedOut();
  }
}

/** Strikes of a peer that pings too often, as in Go's enforcement policy; one more ends its session. */
const MAX_PING_STRIKES = 2;

/** A PING frame with its header. */
const PING_BYTES = 17;

/**
 * Ends sessions whose peer pings more often than `minIntervalMs` while no other bytes pass: GOAWAY ENHANCE_YOUR_CALM `too_many_pings`.
 * PINGs while either side sends data are not counted: Go peers measure the link with such PINGs.
 */
export function limitPings(session: Session, options: { readonly minIntervalMs: number; readonly clock: Clock }): void {
  let strikes = 0;
  let last = Number.NEGATIVE_INFINITY;
  let pings = 0;
  let read = session.bytesRead;
  /** The maximum number of bytes written besides answers to PINGs. Answers that still wait make the estimate too low, never too high. */
  let sent = session.bytesWritten;
  session.whenPing(() => {
    const now = options.clock.monotonic();
    const [readNow, sentNow] = [session.bytesRead, session.bytesWritten - PING_BYTES * pings];
    const withData = readNow - read > 2 * PING_BYTES || sentNow > sent;
    read = readNow;
    sent = Math.max(sent, sentNow);
    pings += 1;
    if (withData) {
      strikes = 0;
      return;
    }
    if (now - last < options.minIntervalMs) strikes += 1;
    last = now;
    if (strikes > MAX_PING_STRIKES) session.expel("too_many_pings");
  });
}
