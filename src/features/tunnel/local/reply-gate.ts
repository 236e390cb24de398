import type { Clock } from "#base/clock";
import type { LocalHandlers, LocalSide } from "./local-side.ts";

/** Intervals of polling whether the reply was read, in milliseconds: the first one, and the longest one. */
const POLL_MS = { first: 1, most: 50 };

/** The client that gets the reply. */
export interface ReplyReader {
  /** Returns true if the client has read all that was written. */
  hasReadAll(): boolean;
}

/**
 * Holds writes back until the client has read the reply to its CONNECT. The API server drops a connection when a byte of the tunnel follows
 * the reply in the same read (docs/spec/tunnel.md#1, #6). When the kernel has taken the reply, the client may not have read it yet.
 */
export class ReplyGate implements LocalSide {
  readonly #inner: LocalSide;
  readonly #reader: ReplyReader;
  readonly #clock: Clock;
  /** `replied`: the reply is written, and the client may not have read it. */
  #state: "waiting" | "replied" | "open" = "waiting";
  /** Writes that wait. */
  #held: (() => void)[] | undefined;
  #cancel: (() => void) | undefined;

  constructor(inner: LocalSide, reader: ReplyReader, clock: Clock) {
    this.#inner = inner;
    this.#reader = reader;
    this.#clock = clock;
  }

  /** To be called when the reply is written. Once the client has read it the held writes pass, and later writes pass directly. */
  replied(): void {
    if (this.#state !== "waiting") return;
    this.#state = "replied";
    if (this.#held !== undefined) this.#poll(POLL_MS.first);
  }

  get bytesWritten(): number {
    return this.#inner.bytesWritten;
  }

  get detectsClose(): boolean {
    return this.#inner.detectsClose;
  }

  start(handlers: LocalHandlers): void {
    this.#inner.start(handlers);
  }

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    this.#whenOpen(() => this.#inner.write(pieces, onWritten));
  }

  finish(error: string | undefined, onFlushed: () => void): void {
    this.#whenOpen(() => this.#inner.finish(error, onFlushed));
  }

  pause(): void {
    this.#inner.pause();
  }

  resume(): void {
    this.#inner.resume();
  }

  destroy(how: "close" | "reset"): void {
    this.#cancel?.();
    this.#state = "open";
    this.#held = undefined;
    this.#inner.destroy(how);
  }

  #whenOpen(write: () => void): void {
    if (this.#state === "open") write();
    else if (this.#held !== undefined) this.#held.push(write);
    else {
      this.#held = [write];
      if (this.#state === "replied") this.#poll(POLL_MS.first);
    }
  }

  /** Polls only while a write waits. If the client sends first, it has read its reply before any write waits. */
  #poll(delayMs: number): void {
    this.#cancel = undefined;
    if (this.#reader.hasReadAll()) {
      const held = this.#held ?? [];
      this.#state = "open";
      this.#held = undefined;
      for (const write of held) write();
      return;
    }
    this.#cancel = this.#clock.after(delayMs, () => this.#poll(Math.min(2 * delayMs, POLL_MS.most)));
  }
}
