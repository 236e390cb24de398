import type { Clock } from "#base/clock";
import type { LocalHandlers, LocalSide } from "./local-side.ts";

/** Intervals of polling whether the reply was read, in milliseconds: the first one, and the longest one. */
const POLL_MS = { first: 1, most: 50 };

/**
 * Holds writes back until the client has read the reply to its CONNECT. The API server drops a connection when a byte of the tunnel follows
 * the reply in the same read (docs/spec/tunnel.md#1, #6). When the kernel has taken the reply, the client may not have read it yet.
 */
export class ReplyGate implements LocalSide {
  readonly #inner: LocalSide;
  readonly #clock: Clock;
  #held: (() => void)[] | undefined = [];
  #isRead: (() => boolean) | undefined;
  #cancel: (() => void) | undefined;
  #delayMs = POLL_MS.first;

  constructor(inner: LocalSide, clock: Clock) {
    this.#inner = inner;
    this.#clock = clock;
  }

  /** To be called when the reply is written. Once `isRead` returns true the held writes pass, and later writes pass directly. */
  replied(isRead: () => boolean): void {
    this.#isRead = isRead;
    this.#poll();
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
    this.#held = undefined;
    this.#inner.destroy(how);
  }

  #whenOpen(write: () => void): void {
    if (this.#held === undefined) {
      write();
      return;
    }
    this.#held.push(write);
    if (this.#held.length === 1) this.#poll();
  }

  /** Polls only while a write waits. If the client sends first, it has read its reply before any write waits. */
  #poll(): void {
    if (this.#isRead === undefined || this.#held === undefined || this.#held.length === 0 || this.#cancel !== undefined)
      return;
    if (this.#isRead()) {
      const held = this.#held;
      this.#held = undefined;
      for (const write of held) write();
      return;
    }
    this.#cancel = this.#clock.after(this.#delayMs, () => {
      this.#cancel = undefined;
      this.#poll();
    });
    this.#delayMs = Math.min(2 * this.#delayMs, POLL_MS.most);
  }
}
