import type { Socket } from "node:net";

/**
 * The bytes of a connection, read when they are asked for: what a client sends while it waits for an answer stays in the kernel, but for one piece.
 */
export class Incoming {
  readonly #socket: Socket;
  #left: Uint8Array | undefined;
  #hasEnded = false;
  #isStopped = false;
  #wake: (() => void) | undefined;
  #onEnd: (() => void) | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("readable", () => {
      // While nobody waits, only the end is looked for: it comes by a read of an empty buffer.
      if (socket.readableLength === 0) socket.read(0);
      this.#wake?.();
    });
    const ended = (): void => {
      if (this.#hasEnded) return;
      this.#hasEnded = true;
      this.#wake?.();
      this.#onEnd?.();
    };
    socket.once("end", ended);
    socket.once("close", ended);
  }

  /** Calls back when the client has ended its side, or the connection has closed: at once if it has. The next call replaces this one. */
  whenEnded(callback: (() => void) | undefined): void {
    this.#onEnd = callback;
    if (this.#hasEnded) callback?.();
  }

  /** Bytes that have come and were not read. */
  get aheadBytes(): number {
    return (this.#left?.length ?? 0) + this.#socket.readableLength;
  }

  /** Gives back what was not used: the next read begins with it. */
  unread(bytes: Uint8Array): void {
    if (bytes.length > 0) this.#left = bytes;
  }

  /** Ends the read that waits, and each later one. */
  stop(): void {
    this.#isStopped = true;
    this.#wake?.();
  }

  /** Resolves with the next bytes; `undefined`: there are no more. */
  async next(): Promise<Uint8Array | undefined> {
    const left = this.#left;
    this.#left = undefined;
    if (left !== undefined) return left;
    for (;;) {
      if (this.#isStopped) return undefined;
      const chunk = this.#socket.read() as Buffer | null;
      if (chunk !== null) return chunk;
      if (this.#hasEnded) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }

  /** Throws away what is there and comes. After `atMost` bytes nothing is read any more, and `onMore` is called. */
  drop({ atMost, onMore }: { readonly atMost: number; readonly onMore: () => void }): void {
    this.#isStopped = true;
    this.#left = undefined;
    this.#socket.removeAllListeners("readable");
    let left = atMost;
    this.#socket.on("data", (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) onMore();
    });
  }
}
