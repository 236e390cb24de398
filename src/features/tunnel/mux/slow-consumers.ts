import type { Clock } from "#base/clock";
import type { Channel } from "./channel.ts";

export interface SlowConsumerOptions {
  readonly clock: Clock;
  /** The time for which the stream may be paused, in milliseconds. */
  readonly graceMs: number;
  /** `close`: the pause ends after the grace. `block`: the pause lasts until no consumer is slow. */
  readonly policy: "close" | "block";
  /** Pauses and resumes the shared stream. */
  readonly pause: () => void;
  readonly resume: () => void;
  readonly onBlocked: (channels: number) => void;
  /** The grace of one consumer is over; its channel ends. */
  readonly onExpired: () => void;
}

/**
 * Handles connections with slow consumers on a link without flow control: pauses the shared stream for at most the grace, and
 * then ends the connections that caused the pause (docs/spec/tunnel.md#8.4).
 */
export class SlowConsumers {
  readonly #blocked = new Set<Channel>();
  readonly #options: SlowConsumerOptions;
  #cancel: (() => void) | undefined;

  constructor(options: SlowConsumerOptions) {
    this.#options = options;
  }

  /** To be called when the channel is above its hard limit. */
  block(channel: Channel): void {
    if (this.#blocked.has(channel)) return;
    this.#blocked.add(channel);
    this.#options.onBlocked(this.#blocked.size);
    if (this.#blocked.size > 1) return;
    this.#options.pause();
    if (this.#options.policy === "block") return;
    this.#cancel = this.#options.clock.after(this.#options.graceMs, () => this.#expire());
  }

  /** To be called when the channel is below its soft limit, or gone. */
  unblock(channel: Channel): void {
    if (!this.#blocked.delete(channel)) return;
    this.#options.onBlocked(this.#blocked.size);
    if (this.#blocked.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
    this.#options.resume();
  }

  /** Forgets all channels, because the link has ended. */
  clear(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    if (this.#blocked.size > 0) this.#options.onBlocked(0);
    this.#blocked.clear();
  }

  #expire(): void {
    this.#cancel = undefined;
    for (const channel of [...this.#blocked]) {
      this.#options.onExpired();
      channel.handlers.onSlowConsumer();
      // Even if the owner has not ended the channel, the channel does not stop the stream any more.
      this.unblock(channel);
    }
  }
}
