import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { TokenBucket } from "./token-bucket.ts";

/** Warnings that peers can cause, limited to one a second with a burst of five, so that peers cannot fill the log. */
export class RateLimitedLog {
  readonly #log: Logger;
  readonly #limit: TokenBucket;
  #suppressed = 0;

  constructor(deps: { readonly clock: Clock; readonly log: Logger }) {
    this.#log = deps.log;
    this.#limit = new TokenBucket({ ratePerSecond: 1, burst: 5, clock: deps.clock });
  }

  /** Writes the line, with the number of lines that were suppressed since the last written one; or suppresses the line. */
  warn(message: string, fields: Readonly<Record<string, unknown>>): void {
    if (!this.#limit.tryTake()) {
      this.#suppressed += 1;
      return;
    }
    const suppressed = this.#suppressed;
    this.#suppressed = 0;
    this.#log.warn(message, suppressed === 0 ? fields : { ...fields, suppressed });
  }
}
