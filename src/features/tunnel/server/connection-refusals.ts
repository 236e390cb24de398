import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { RateLimitedLog } from "#base/rate-limit";
import type { ConnectionRefusal, RefusingListener, ServerMetrics } from "./metrics.ts";

/** Counts and logs connections that end before, or because of, what their peer does. Whoever reaches the port can cause lines, so they are limited. */
export class ConnectionRefusals {
  readonly #listener: RefusingListener;
  readonly #metrics: Pick<ServerMetrics, "connectionRefused">;
  readonly #log: RateLimitedLog;

  constructor(
    deps: { readonly log: Logger; readonly clock: Clock; readonly metrics: Pick<ServerMetrics, "connectionRefused"> },
    listener: RefusingListener,
  ) {
    this.#listener = listener;
    this.#metrics = deps.metrics;
    this.#log = new RateLimitedLog(deps);
  }

  note(reason: ConnectionRefusal, { peer, text }: { readonly peer: string | undefined; readonly text: string }): void {
    this.#metrics.connectionRefused(this.#listener, reason);
    this.#log.warn("connection refused", { port: this.#listener, peer, cause: reason, reason: text });
  }
}
