import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { describeError } from "#base/errors";
import { resetSocket } from "#base/socket-reset";
import { goErrorText } from "./go-errors.ts";
import type { LocalHandlers, LocalWatcher, WatchedSide } from "./local-side.ts";

/** Interval of TCP keepalive: Go's default, in milliseconds. */
export const TCP_KEEPALIVE_MS = 15_000;
/**
 * Closing a socket with unread bytes resets the connection, and the peer may lose the last bytes that were sent to it. Therefore a socket
 * whose writing has ended in order is read for this time, in milliseconds; the bytes are discarded.
 */
export const LINGER_MS = 500;

/** The interval at which a socket that is paused, or that has ended its sending, is probed, in milliseconds. */
const PROBE_MS = 1000;
const NOTHING = new Uint8Array(0);

/** Maximum of bytes that are read before {@link SocketSide.start}. */
export const HELD_BYTES = 64 * 1024;
/** Maximum of reads before it: a short one takes some hundred bytes besides its own. */
export const HELD_READS = 1024;

/** A TCP (or UNIX) socket as the local side of a connection. The socket must have been made with `allowHalfOpen`. */
export class SocketSide implements WatchedSide {
  readonly #socket: Socket;
  /** The kernel distinguishes close from the end of sending only on UNIX sockets, which have no remote address. */
  readonly detectsClose: boolean;
  #watcher: LocalWatcher | undefined;
  #handlers: LocalHandlers | undefined;
  /** Bytes read before {@link start}; at most {@link HELD_BYTES} and one read, and at most {@link HELD_READS} reads. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #ended = false;
  #paused = false;
  #gone = false;
  #lostError: string | undefined;
  #probe: NodeJS.Timeout | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.detectsClose = socket.remoteAddress === undefined && !(socket instanceof TLSSocket);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, TCP_KEEPALIVE_MS);
    // An error without a listener would end the process. The close event follows each error.
    socket.on("error", (error) => this.#lost(goErrorText(error) ?? describeError(error)));
    socket.once("close", () => this.#lost(undefined));
  }

  get bytesWritten(): number {
    return this.#socket.bytesWritten - this.#socket.writableLength;
  }

  /**
   * Reads at most {@link HELD_BYTES} before {@link start}, so that a close of the peer is detected. `start` passes these bytes on. `early`
   * are bytes that were read from the socket before; they come first.
   */
  watch(watcher: LocalWatcher, early: readonly Uint8Array[] = []): void {
    this.#watcher = watcher;
    this.#held.push(...early);
    this.#listen();
  }

  start(handlers: LocalHandlers): void {
    const watched = this.#watcher !== undefined;
    this.#watcher = undefined;
    this.#handlers = handlers;
    const held = this.#held;
    this.#held = [];
    if (held.length > 0) handlers.onLocalData(held);
    if (this.#gone) handlers.onLocalGone(this.#lostError);
    else if (this.#ended) handlers.onLocalEof();
    else if (!watched) this.#listen();
    else if (!this.#paused) this.#socket.resume();
  }

  #listen(): void {
    this.#socket.on("data", this.#onData);
    this.#socket.once("end", () => {
      this.#ended = true;
      if (this.#gone) return;
      (this.#handlers ?? this.#watcher)?.onLocalEof();
      this.#startProbing();
      this.#probeNow();
    });
    this.#socket.resume();
  }

  unwatch(): void {
    this.#watcher = undefined;
    this.#held = [];
    this.#socket.off("data", this.#onData);
  }

  readonly #onData = (chunk: Uint8Array): void => {
    if (this.#handlers !== undefined) {
      this.#handlers.onLocalData([chunk]);
      return;
    }
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#heldBytes > HELD_BYTES || this.#held.length >= HELD_READS) this.#socket.pause();
  };

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    const last = pieces.at(-1);
    if (last === undefined || this.#gone) return;
    this.#socket.cork();
    for (let at = 0; at < pieces.length - 1; at += 1) this.#socket.write(pieces[at] ?? last);
    // The callback is also called for a failed write: the bytes are not held any more.
    this.#socket.write(last, () => onWritten());
    this.#socket.uncork();
  }

  /** With an error the socket is reset if no bytes wait to be written, as a reset would drop them; else the owner does it once they have left. */
  finish(error: string | undefined, onFlushed: () => void): void {
    if (error !== undefined && this.#socket.writableLength === 0) {
      this.destroy("reset");
      onFlushed();
      return;
    }
    if (this.#socket.writableFinished || this.#socket.destroyed) onFlushed();
    else if (error !== undefined) {
      // The end of the stream would tell the reader that nothing is missing. After a failed write the close event follows.
      this.#socket.write(NOTHING, (failure) => {
        if (failure === null || failure === undefined) onFlushed();
      });
    } else this.#socket.end(onFlushed);
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
    this.#startProbing();
  }

  #startProbing(): void {
    if (this.#gone) return;
    this.#probe ??= setInterval(() => this.#probeNow(), PROBE_MS).unref();
  }

  /**
   * Node reports neither the reset of a paused socket nor the close of a peer that had ended its sending. An empty write fails on
   * such a socket and sends nothing on others.
   */
  #probeNow(): void {
    const { writable, writableLength } = this.#socket;
    if ((this.#paused || this.#ended) && writable && writableLength === 0) this.#socket.write(NOTHING);
  }

  resume(): void {
    this.#paused = false;
    this.#socket.resume();
  }

  destroy(how: "close" | "reset"): void {
    if (this.#gone) return;
    this.#gone = true;
    if (how === "reset") resetSocket(this.#socket);
    else if (this.#socket.writableFinished && !this.#socket.readableEnded) this.#lingerAndDestroy();
    else this.#socket.destroy();
  }

  #lingerAndDestroy(): void {
    const socket = this.#socket;
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    timer.unref();
    socket.once("end", () => socket.destroy());
    socket.once("close", () => clearTimeout(timer));
    socket.removeAllListeners("data");
    socket.resume();
  }

  #lost(error: string | undefined): void {
    clearInterval(this.#probe);
    if (this.#gone) return;
    this.#gone = true;
    this.#lostError = error;
    (this.#handlers ?? this.#watcher)?.onLocalGone(error);
  }
}
