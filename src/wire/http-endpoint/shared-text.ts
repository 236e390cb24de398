import type { Clock } from "#base/clock";

/** The text is made again after this many times the duration of its making: at most a tenth of a processor goes into it, whoever asks how often. */
const REST = 9;

/** A text that costs time to make, such as all metrics: one making serves all who ask meanwhile, and those who ask shortly afterwards. */
export class SharedText {
  readonly #make: () => Promise<string> | string;
  readonly #clock: Clock;
  #made: { readonly bytes: Promise<Uint8Array>; staleAt: number } | undefined;

  constructor(make: () => Promise<string> | string, { clock }: { readonly clock: Clock }) {
    this.#make = make;
    this.#clock = clock;
  }

  /** Rejects as the making does; the next call makes the text again. */
  read(): Promise<Uint8Array> {
    const made = this.#made;
    if (made !== undefined && this.#clock.monotonic() < made.staleAt) return made.bytes;
    const startedAt = this.#clock.monotonic();
    const next = { bytes: this.#encode(), staleAt: Number.POSITIVE_INFINITY };
    this.#made = next;
    const done = (): void => {
      const now = this.#clock.monotonic();
      next.staleAt = now + REST * (now - startedAt);
    };
    next.bytes.then(done, () => {
      next.staleAt = 0;
    });
    return next.bytes;
  }

  async #encode(): Promise<Uint8Array> {
    return Buffer.from(await this.#make());
  }
}
