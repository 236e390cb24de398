import type { Clock } from "#base/clock";
import type { LogFields, Logger } from "#base/log";
import { TokenBucket } from "./token-bucket.ts";

/** Lines that peers can cause, limited to one a second with a burst of five, so that peers cannot fill the log. */
export class RateLimitedLog {
  readonly #log: Logger;
  readonly #limit: TokenBucket;
  #suppressed = 0;

  constructor(deps: { readonly clock: Clock; readonly log: Logger }) {
    this.#log = deps.log;
    this.#limit = new TokenBucket({ ratePerSecond: 1, burst: 5, clock: deps.clock });
  }

  /** Writes the line, with the number of lines that were suppressed since the last written one; or suppresses the line. */
  warn(message: string, fields: LogFields): void {
    this.#write("warn", message, fields);
  }

  /** As {@link RateLimitedLog.warn}, for a change that is no fault. Both count against one limit. */
  info(message: string, fields: LogFields): void {
    this.#write("info", message, fields);
  }

  #write(level: "warn" | "info", message: string, fields: LogFields): void {
    if (!this.#limit.tryTake()) {
      this.#suppressed += 1;
      return;
    }
    const suppressed = this.#suppressed;
    this.#suppressed = 0;
    this.#log[level](message, suppressed === 0 ? fields : { ...fields, suppressed });
  }
}
