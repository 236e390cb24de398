import { sleep } from "#base/async";
import type { Clock } from "#base/clock";

/** After a making this many times its duration pass before the next one: at most a fifth of a processor goes into it, whoever asks how often. */
const REST = 4;

/** A text that costs time to make, such as all metrics: one making serves all who ask before it is done. */
export class SharedText {
  readonly #make: () => Promise<string> | string;
  readonly #clock: Clock;
  /** The making that is under way, or waits for its time. */
  #making: Promise<Uint8Array> | undefined;
  #restUntil = Number.NEGATIVE_INFINITY;

  constructor(make: () => Promise<string> | string, { clock }: { readonly clock: Clock }) {
    this.#make = make;
    this.#clock = clock;
  }

  /** Rejects as the making does; the next call makes the text again. */
  read(): Promise<Uint8Array> {
    this.#making ??= this.#run();
    return this.#making;
  }

  async #run(): Promise<Uint8Array> {
    const restMs = this.#restUntil - this.#clock.monotonic();
    if (restMs > 0) await sleep(restMs, { clock: this.#clock });
    const startedAt = this.#clock.monotonic();
    try {
      return Buffer.from(await this.#make());
    } finally {
      const now = this.#clock.monotonic();
      this.#restUntil = now + REST * (now - startedAt);
      this.#making = undefined;
    }
  }
}
