import type { Clock } from "#base/clock";
import type { LocalEnd, LocalHandlers } from "./local-end.ts";

/** Interval of polling whether the reply was read, milliseconds: the first one, and the longest. */
const ASK_AGAIN_MS = { first: 1, most: 50 };

/**
 * Holds writes back until the client has read the reply to its CONNECT. The API server drops a connection when a byte of the tunnel
 * follows the reply in the same read (docs/spec/tunnel.md#1, #6). That the kernel has taken the reply does not mean that it was read.
 */
export class GatedEnd implements LocalEnd {
  readonly #end: LocalEnd;
  readonly #clock: Clock;
  #held: (() => void)[] | undefined = [];
  #isRead: (() => boolean) | undefined;
  #cancel: (() => void) | undefined;
  #delayMs = ASK_AGAIN_MS.first;

  constructor(end: LocalEnd, clock: Clock) {
    this.#end = end;
    this.#clock = clock;
  }

  /** The reply is written. Once `isRead` returns true the held writes pass, and later ones directly. */
  answered(isRead: () => boolean): void {
    this.#isRead = isRead;
    this.#look();
  }

  get bytesWritten(): number {
    return this.#end.bytesWritten;
  }

  get tellsLeaving(): boolean {
    return this.#end.tellsLeaving;
  }

  start(handlers: LocalHandlers): void {
    this.#end.start(handlers);
  }

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    this.#whenOpen(() => this.#end.write(pieces, onWritten));
  }

  finish(error: string | undefined, onFlushed: () => void): void {
    this.#whenOpen(() => this.#end.finish(error, onFlushed));
  }

  pause(): void {
    this.#end.pause();
  }

  resume(): void {
    this.#end.resume();
  }

  destroy(how: "close" | "reset"): void {
    this.#cancel?.();
    this.#held = undefined;
    this.#end.destroy(how);
  }

  #whenOpen(write: () => void): void {
    if (this.#held === undefined) {
      write();
      return;
    }
    this.#held.push(write);
    if (this.#held.length === 1) this.#look();
  }

  /** Polls only while something waits: a client that sends first has read its reply by then. */
  #look(): void {
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
      this.#look();
    });
    this.#delayMs = Math.min(2 * this.#delayMs, ASK_AGAIN_MS.most);
  }
}
