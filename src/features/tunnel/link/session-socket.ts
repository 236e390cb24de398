import type { Http2Server, Http2Session } from "node:http2";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { TLSSocket, Server as TlsServer } from "node:tls";

/** What the kernel has not taken may be so many bytes, in so many writes: more is a peer that asks for answers and does not read them. */
const MAX_WAITING_BYTES = 32 * 1024 * 1024;
const MAX_WAITING_WRITES = 100_000;

/** What a connection has been given and the kernel has not taken. */
export interface SendBacklog {
  /** Bytes. */
  readonly waitingBytes: number;
  /** Calls once: now where little waits, else when nothing does; never where the connection is lost before. */
  onDrained(callback: () => void): void;
}

/**
 * A TLS connection as an HTTP/2 session of Node is to see it: one that takes all writes at once and is always read.
 *
 * Left alone with the connection, a session does not read while a write of its waits for the kernel, so that two of them with much to
 * say to each other both wait for ever. And it never hears of a write that failed: of the connection's end it learns by reading, and
 * after a failed write the TLS layer keeps the next one back for ever, with which reading does not begin again.
 *
 * So whoever sends has to look at {@link SendBacklog} himself. A connection of which too much waits is destroyed.
 */
export class SessionSocket extends Duplex implements SendBacklog {
  readonly tls: TLSSocket;
  #onDrained: (() => void)[] = [];
  /** Since nothing waited. */
  #writes = 0;

  /** Takes the connection over, after its handshake. */
  constructor(tls: TLSSocket) {
    super({ allowHalfOpen: true });
    this.tls = tls;
    tls.disableRenegotiation();
    tls.on("data", (chunk: Buffer) => {
      if (!this.push(chunk)) tls.pause();
    });
    tls.on("drain", () => {
      this.#writes = 0;
      for (const callback of this.#onDrained.splice(0)) callback();
    });
    tls.once("end", () => this.push(null));
    tls.once("error", (error) => this.destroy(error));
    tls.once("close", () => this.destroy());
    tls.pause();
  }

  get waitingBytes(): number {
    return this.tls.writableLength;
  }

  onDrained(callback: () => void): void {
    if (this.tls.writableNeedDrain) this.#onDrained.push(callback);
    else callback();
  }

  override _read(): void {
    this.tls.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.tls.write(chunk);
    this.#accepted(1, done);
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.tls.cork();
    for (const { chunk } of chunks) this.tls.write(chunk);
    this.tls.uncork();
    this.#accepted(chunks.length, done);
  }

  override _final(done: () => void): void {
    this.tls.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.tls.destroy();
    done(error);
  }

  #accepted(writes: number, done: (error?: Error | null) => void): void {
    const { writableLength } = this.tls;
    this.#writes = writableLength === 0 ? 0 : this.#writes + writes;
    const isTooMuch = writableLength > MAX_WAITING_BYTES || this.#writes > MAX_WAITING_WRITES;
    done(isTooMuch ? new Error("the peer does not read the answers that it asks for") : null);
  }
}

/** Gives a TLS server's connections to an HTTP/2 server. Those that did not agree on HTTP/2 end. */
export function serveSessions(tls: TlsServer, server: Http2Server): void {
  tls.on("secureConnection", (socket) => {
    if (socket.alpnProtocol === "h2") server.emit("connection", new SessionSocket(socket));
    else socket.destroy();
  });
}

/** What a session runs over, where it is a {@link SessionSocket}. */
export function sessionSocketOf(session: Http2Session | undefined): SessionSocket | undefined {
  // Node wraps what is no socket of its own.
  const wrapped = session?.socket as (Socket & { readonly stream?: unknown }) | undefined;
  return wrapped?.stream instanceof SessionSocket ? wrapped.stream : undefined;
}
