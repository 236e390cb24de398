import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { describeError } from "#base/errors";
import { resetSocket } from "#base/socket-reset";
import { goErrorText } from "./error-text.ts";
import type { LocalEnd, LocalHandlers } from "./local-end.ts";

/** Go's default, milliseconds. */
const TCP_KEEPALIVE_MS = 15_000;
/**
 * A socket closed with unread bytes resets the connection, and the peer may lose what was sent to it last. So a socket whose
 * writing has ended in order reads on so long, to nowhere, milliseconds.
 */
const LINGER_MS = 500;

/** How often a socket that is not read, or has nothing more to be read, is asked whether it still is one, milliseconds. */
const PROBE_MS = 1000;
const NOTHING = new Uint8Array(0);

/** Held of a socket whose connection is still being made. */
const HELD_BYTES = 64 * 1024;

/** A TCP (or UNIX) socket as the local side of a connection. The socket must have been made with `allowHalfOpen`. */
export class SocketEnd implements LocalEnd {
  readonly #socket: Socket;
  /** The kernel tells the peer's close from the end of its sending on UNIX sockets alone, where nobody has an address. */
  readonly tellsLeaving: boolean;
  #watcher: Pick<LocalHandlers, "onEof" | "onGone"> | undefined;
  #handlers: LocalHandlers | undefined;
  /** What came while nobody took it; at most {@link HELD_BYTES} and one read. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #ended = false;
  #paused = false;
  #gone = false;
  #lostError: string | undefined;
  #probe: NodeJS.Timeout | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.tellsLeaving = socket.remoteAddress === undefined && !(socket instanceof TLSSocket);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, TCP_KEEPALIVE_MS);
    // Until somebody is told of errors they must not end the process; the close event comes after each.
    socket.on("error", (error) => this.#lost(goErrorText(error) ?? describeError(error)));
    socket.once("close", () => this.#lost(undefined));
  }

  get bytesWritten(): number {
    return this.#socket.bytesWritten - this.#socket.writableLength;
  }

  /**
   * Reads a little before {@link start}, so that a peer that leaves meanwhile is noticed; what came is handed on by start.
   * `early` was read from the socket before, and comes first.
   */
  watch(watcher: Pick<LocalHandlers, "onEof" | "onGone">, early: readonly Uint8Array[] = []): void {
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
    if (held.length > 0) handlers.onData(held);
    if (this.#gone) handlers.onGone(this.#lostError);
    else if (this.#ended) handlers.onEof();
    else if (!watched) this.#listen();
    else if (!this.#paused) this.#socket.resume();
  }

  #listen(): void {
    this.#socket.on("data", (chunk: Uint8Array) => {
      if (this.#handlers !== undefined) {
        this.#handlers.onData([chunk]);
        return;
      }
      this.#held.push(chunk);
      this.#heldBytes += chunk.length;
      if (this.#heldBytes > HELD_BYTES) this.#socket.pause();
    });
    this.#socket.once("end", () => {
      this.#ended = true;
      if (this.#gone) return;
      (this.#handlers ?? this.#watcher)?.onEof();
      this.#probeFromNowOn();
      this.#look();
    });
    this.#socket.resume();
  }

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    const last = pieces.at(-1);
    if (last === undefined || this.#gone) return;
    this.#socket.cork();
    for (let at = 0; at < pieces.length - 1; at += 1) this.#socket.write(pieces[at] ?? last);
    // Also called for a write that failed: those bytes occupy nothing any more.
    this.#socket.write(last, () => onWritten());
    this.#socket.uncork();
  }

  /** A failed other side is shown by a reset where no byte is lost by it: when nothing waits to be written. */
  finish(error: string | undefined, onFlushed: () => void): void {
    if (error !== undefined && this.#socket.writableLength === 0) {
      this.destroy("reset");
      onFlushed();
      return;
    }
    if (this.#socket.writableFinished || this.#socket.destroyed) onFlushed();
    else this.#socket.end(onFlushed);
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
    this.#probeFromNowOn();
  }

  #probeFromNowOn(): void {
    if (this.#gone) return;
    this.#probe ??= setInterval(() => this.#look(), PROBE_MS).unref();
  }

  /**
   * Nobody is told of a reset of a socket that is not read, nor of the close of a peer that had ended its sending; a write of nothing
   * is, without a byte on the wire.
   */
  #look(): void {
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
    (this.#handlers ?? this.#watcher)?.onGone(error);
  }
}
