import type { Clock } from "#base/clock";

/** Failures in a row after which no request is sent for a time (docs/spec/vpc-nics.md#5.9). */
const MAX_FAILURES = 5;
/** For how long no request is sent, in milliseconds. */
const OPEN_MS = 10_000;

/**
 * Decides if requests are sent to an endpoint. After five requests in a row without an answer, or one answer 503, none is sent for ten seconds;
 * then one is each ten seconds, since one for many ports can wait a minute for its answer, and the end of any of them decides. So a cloud that has failed is
 * not met by the requests of thousands of pods at its return.
 */
export class Circuit {
  readonly #clock: Clock;
  readonly #onChange: (isOpen: boolean) => void;
  #failures = 0;
  #openUntil = Number.NEGATIVE_INFINITY;
  #isOpen = false;
  /** Until when no other try is sent, on the monotonic clock. */
  #triedUntil = Number.NEGATIVE_INFINITY;

  /** `onChange` is called when the circuit opens and when it closes. */
  constructor({ clock }: { readonly clock: Clock }, onChange: (isOpen: boolean) => void = () => undefined) {
    this.#clock = clock;
    this.#onChange = onChange;
  }

  /** The milliseconds until a request may be sent; 0 if it may be now, which counts as a try of an open circuit. */
  admit(): number {
    if (!this.#isOpen) return 0;
    const now = this.#clock.monotonic();
    const leftMs = Math.max(this.#openUntil, this.#triedUntil) - now;
    if (leftMs > 0) return leftMs;
    this.#triedUntil = now + OPEN_MS;
    return 0;
  }

  /** A request has an answer, whatever it says, other than 503. */
  succeeded(): void {
    this.#failures = 0;
    this.#triedUntil = Number.NEGATIVE_INFINITY;
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#onChange(false);
  }

  /** A request has no answer; `isUnavailable`: it has the answer 503. */
  failed(isUnavailable: boolean): void {
    this.#failures += 1;
    this.#triedUntil = Number.NEGATIVE_INFINITY;
    if (!this.#isOpen && !isUnavailable && this.#failures < MAX_FAILURES) return;
    this.#openUntil = this.#clock.monotonic() + OPEN_MS;
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#onChange(true);
  }

  /** A request was given up by its caller, so it tells nothing. */
  abandoned(): void {
    this.#triedUntil = Number.NEGATIVE_INFINITY;
  }
}
