import type { LocalEnd, LocalHandlers } from "./local-end.ts";

/**
 * Holds what is written back until it is opened. A CONNECT client must have read its answer before the first byte of the
 * tunnel: the API server drops a connection when a byte follows the answer in the same read (spec tunnel 1, 6).
 */
export class GatedEnd implements LocalEnd {
  readonly #end: LocalEnd;
  #held: (() => void)[] | undefined = [];

  constructor(end: LocalEnd) {
    this.#end = end;
  }

  /** From now on writes go through, those held first. */
  open(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const write of held) write();
  }

  get bytesWritten(): number {
    return this.#end.bytesWritten;
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
    this.#held = undefined;
    this.#end.destroy(how);
  }

  #whenOpen(write: () => void): void {
    if (this.#held === undefined) write();
    else this.#held.push(write);
  }
}
