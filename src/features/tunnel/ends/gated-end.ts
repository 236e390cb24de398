import type { Clock } from "#base/clock";
import type { LocalEnd, LocalHandlers } from "./local-end.ts";

/** After so long it is asked again whether the answer was read, milliseconds: at first, and at most. */
const ASK_AGAIN_MS = { first: 1, most: 50 };

/**
 * Holds what is written back until the answer before it was read. The API server drops a connection when a byte of the tunnel follows
 * a CONNECT's answer in the same read (docs/spec/tunnel.md#1, #6), and that the kernel has taken the answer says nothing about the reader.
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

  /** The answer is written. From now on writes go through, those held first, as soon as `isRead` says that it was read. */
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

  /** Asks only while something waits: a client that speaks first has read its answer by then. */
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
