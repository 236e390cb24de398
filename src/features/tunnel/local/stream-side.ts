import type { ByteStream, StreamOwner } from "#base/byte-stream";
import { describeError } from "#base/errors";
import { CLOSE_LINGER_MS } from "../mux/options.ts";
import { goErrorText } from "./go-errors.ts";
import type { LocalHandlers, LocalWatcher, WatchedSide } from "./local-side.ts";
import { HELD_BYTES, HELD_READS, LINGER_MS, TCP_KEEPALIVE_MS } from "./socket-side.ts";

/**
 * The interval at which it is looked how many of the waiting bytes the kernel has taken, in milliseconds. A stream says so only when it has taken all, which it never
 * does for a reader that is slower than its peer.
 */
const LOOK_MS = 250;

/** Bytes that wait for the kernel. */
interface Writing {
  /** The number of bytes of the side up to their end. */
  readonly end: number;
  readonly onWritten: () => void;
}

/** The bytes that are read before {@link StreamSide.start}. */
interface Early {
  readonly watcher: LocalWatcher;
  /** At most {@link HELD_BYTES} and one read, and at most {@link HELD_READS} reads. */
  readonly held: Uint8Array[];
  heldBytes: number;
}

/** A stream of `kernel/reactor` as the local side of a connection. */
export class StreamSide implements WatchedSide, StreamOwner {
  readonly detectsClose: boolean;
  readonly #closeLingerMs: number;
  readonly #stream: ByteStream;
  #early: Early | undefined;
  #handlers: LocalHandlers | undefined;
  /** The bytes that the kernel has not accepted yet, in order; absent if there are none. */
  #writings: Writing[] | undefined;
  #look: NodeJS.Timeout | undefined;
  #queuedBytes = 0;
  #hasEnded = false;
  #isGone = false;
  #isPaused = false;
  /** Runs once the peer is known to have closed while bytes are unread. */
  #unread: NodeJS.Timeout | undefined;

  /**
   * The stream is paused and connected. `detectsClose`: it tells the close of the peer from the end of its sending, as UNIX streams do. `closeLingerMs`: how long the last bytes of a peer that
   * has closed are kept while the tunnel takes none of them; default 10 s.
   */
  constructor(
    stream: ByteStream,
    options: { readonly detectsClose?: boolean; readonly closeLingerMs?: number | undefined } = {},
  ) {
    const { detectsClose = false, closeLingerMs = CLOSE_LINGER_MS } = options;
    this.#closeLingerMs = closeLingerMs;
    this.#stream = stream;
    this.detectsClose = detectsClose;
    stream.keepAlive(TCP_KEEPALIVE_MS);
    stream.setOwner(this);
  }

  get bytesWritten(): number {
    return this.#queuedBytes - this.#stream.writableLength;
  }

  watch(watcher: LocalWatcher, early: readonly Uint8Array[]): void {
    this.#early = { watcher, held: [...early], heldBytes: 0 };
    this.#stream.resume();
  }

  unwatch(): void {
    this.#early = undefined;
  }

  start(handlers: LocalHandlers): void {
    const held = this.#early?.held ?? [];
    this.#early = undefined;
    this.#handlers = handlers;
    if (held.length > 0) handlers.onLocalData(held);
    if (this.#isGone) handlers.onLocalGone(this.#error);
    else if (this.#hasEnded) handlers.onLocalEof();
    if (!this.#isPaused) this.#stream.resume();
  }

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    if (this.#isGone) return;
    let isTaken = true;
    for (const piece of pieces) {
      this.#queuedBytes += piece.length;
      isTaken = this.#stream.write(piece);
    }
    if (isTaken) {
      onWritten();
      return;
    }
    this.#waitFor(onWritten);
  }

  /** With an error the connection is reset if no bytes wait to be written, as a reset would drop them; else the owner does it once they have left. */
  finish(error: string | undefined, onFlushed: () => void): void {
    if (error !== undefined && this.#stream.writableLength === 0) {
      this.destroy("reset");
      onFlushed();
      return;
    }
    if (this.#stream.destroyed) {
      onFlushed();
      return;
    }
    if (error !== undefined) {
      // The end of the stream would tell the reader that nothing is missing.
      this.#waitFor(() => {
        if (!this.#stream.destroyed) onFlushed();
      });
      return;
    }
    this.#stream.once("finish", onFlushed);
    this.#stream.end();
  }

  pause(): void {
    this.#isPaused = true;
    this.#stream.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#stream.resume();
  }

  destroy(how: "close" | "reset"): void {
    if (this.#isGone) return;
    this.#isGone = true;
    if (how === "reset") this.#stream.reset();
    else if (this.#stream.writableFinished && !this.#stream.readableEnded) this.#lingerAndDestroy();
    else this.#stream.destroy();
  }

  /** The bytes of a read are valid during the call only. */
  onData(chunk: Uint8Array): void {
    const early = this.#early;
    // Nobody wants the bytes of a client whose dial has failed, and of a stream that lingers.
    if (this.#isGone || (this.#handlers === undefined && early === undefined)) return;
    const bytes = Buffer.from(chunk);
    this.#unread?.refresh();
    if (early === undefined) {
      this.#handlers?.onLocalData([bytes]);
      return;
    }
    early.held.push(bytes);
    early.heldBytes += bytes.length;
    if (early.heldBytes > HELD_BYTES || early.held.length >= HELD_READS) this.#stream.pause();
  }

  onEnd(): void {
    this.#hasEnded = true;
    if (!this.#isGone) this.#receiver?.onLocalEof();
  }

  onDrain(): void {
    this.#written();
  }

  /** No drain comes before this. */
  onFinish(): void {
    this.#written();
  }

  /** The peer has closed and reads nothing any more. Its last bytes are read unless the tunnel takes none of them for `closeLingerMs`. */
  onHangUp(): void {
    this.#unread = setTimeout(() => this.#stream.destroy(), this.#closeLingerMs).unref();
  }

  onClose(): void {
    clearTimeout(this.#unread);
    // The bytes are not held any more.
    this.#written();
    this.#stopLooking();
    if (this.#isGone) return;
    this.#isGone = true;
    this.#receiver?.onLocalGone(this.#error);
  }

  get #receiver(): LocalWatcher | undefined {
    return this.#handlers ?? this.#early?.watcher;
  }

  get #error(): string | undefined {
    const { errored } = this.#stream;
    return errored === undefined ? undefined : (goErrorText(errored) ?? describeError(errored));
  }

  /** Closing with unread bytes would reset the connection, and the peer may lose the last bytes that were sent to it. */
  #lingerAndDestroy(): void {
    const stream = this.#stream;
    const timer = setTimeout(() => stream.destroy(), LINGER_MS);
    timer.unref();
    stream.once("end", () => stream.destroy());
    stream.once("close", () => clearTimeout(timer));
    stream.resume();
  }

  #waitFor(onWritten: () => void): void {
    this.#writings ??= [];
    this.#writings.push({ end: this.#queuedBytes, onWritten });
    this.#look ??= setInterval(() => this.#taken(), LOOK_MS).unref();
  }

  /** Some of the waiting bytes may have been taken. The timer lives until nothing waits when it fires: a busy stream waits and drains all the time. */
  #taken(): void {
    const writings = this.#writings;
    if (writings === undefined) {
      this.#stopLooking();
      return;
    }
    const { bytesWritten } = this;
    let done = 0;
    while (done < writings.length && (writings[done] as Writing).end <= bytesWritten) done += 1;
    if (done === writings.length) this.#written();
    else for (const { onWritten } of writings.splice(0, done)) onWritten();
  }

  #stopLooking(): void {
    clearInterval(this.#look);
    this.#look = undefined;
  }

  /** No byte waits any more. */
  #written(): void {
    const writings = this.#writings;
    this.#writings = undefined;
    for (const { onWritten } of writings ?? []) onWritten();
  }
}
