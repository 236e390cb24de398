import { type AbortOptions, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";

/** For how long an answer is used, in milliseconds. */
const KEPT_MS = 60_000;
/** For how long a failure is, in milliseconds: a VPC may be made just now. */
const FAILURE_KEPT_MS = 5000;
/** Answers that are kept; the oldest goes. */
const MAX_ANSWERS = 2000;

interface Kept<Value> {
  readonly value: Promise<Value>;
  /** When its look-up began, on the monotonic clock. */
  readonly sinceMs: number;
  untilMs: number;
}

/** Answers to look-ups, one look-up of a key at a time. */
export class ResolveCache<Value> {
  readonly #clock: Clock;
  readonly #kept = new Map<string, Kept<Value>>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /**
   * The answer for a key, by `look` if none is kept that was looked up within the last `maxAgeMs` milliseconds; by default each that is kept will do. A look-up has other waiters, so it ends by itself, not by this caller's signal; it
   * rejects with the look-up's error, and with the signal's reason.
   */
  async get(
    key: string,
    look: () => Promise<Value>,
    { signal, maxAgeMs = Number.POSITIVE_INFINITY }: AbortOptions & { readonly maxAgeMs?: number | undefined },
  ): Promise<Value> {
    const found = this.#kept.get(key);
    const now = this.#clock.monotonic();
    if (found !== undefined && (isPending(found) || (now < found.untilMs && now - found.sinceMs <= maxAgeMs)))
      return unlessAborted(found.value, { signal });
    this.#kept.delete(key);
    const [oldest] = this.#kept.keys();
    if (oldest !== undefined && this.#kept.size >= MAX_ANSWERS) this.#kept.delete(oldest);
    // Until it ends, it is kept however long it takes.
    const kept: Kept<Value> = { value: look(), sinceMs: now, untilMs: Number.POSITIVE_INFINITY };
    const keep = (ms: number): void => {
      kept.untilMs = this.#clock.monotonic() + ms;
    };
    kept.value.then(
      () => keep(KEPT_MS),
      () => keep(FAILURE_KEPT_MS),
    );
    this.#kept.set(key, kept);
    return unlessAborted(kept.value, { signal });
  }
}

function isPending({ untilMs }: Kept<unknown>): boolean {
  return untilMs === Number.POSITIVE_INFINITY;
}
