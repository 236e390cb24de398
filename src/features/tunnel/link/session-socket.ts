import type { Http2Server, Http2Session } from "node:http2";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { TLSSocket, Server as TlsServer } from "node:tls";

/** A connection has room again while so much waits for the kernel, bytes. */
const ROOM_BYTES = 256 * 1024;
const NOTHING = Buffer.alloc(0);
/** Far beyond what our senders let wait. An answer to SETTINGS has nine bytes, and costs some hundred: hence both. */
const LIMITS = { waitingBytes: 32 * 1024 * 1024, waitingWrites: 100_000 };

/** A peer that asks for answers and does not read them is not read either, while more than this waits for the kernel. */
export interface SessionLimits {
  readonly waitingBytes: number;
  readonly waitingWrites: number;
}

/** A connection that takes all that it is given. */
export interface SendBacklog {
  /** Calls once: now where little waits for the kernel, else as soon as it does; never where the connection is lost before. */
  whenRoom(callback: () => void): void;
}

/**
 * A TLS connection as an HTTP/2 session of Node is to see it: one that takes all writes at once, and is read meanwhile.
 *
 * Left alone with the connection, a session does not read while a write of its waits for the kernel, so that two of them with much to
 * say to each other both wait for ever. And it never hears of a write that failed: of the connection's end it learns by reading, and
 * after a failed write the TLS layer keeps the next one back for ever, with which reading does not begin again.
 *
 * So whoever sends has to look at {@link SendBacklog} himself.
 */
export class SessionSocket extends Duplex implements SendBacklog {
  readonly tls: TLSSocket;
  #waiting: (() => void)[] = [];
  /** Those that the kernel has not taken yet. */
  #writes = 0;
  #isHeld = false;

  /** Takes the connection over, after its handshake. */
  constructor(tls: TLSSocket, limits: SessionLimits = LIMITS) {
    super({ allowHalfOpen: true });
    this.tls = tls;
    tls.disableRenegotiation();
    tls.on("data", (chunk: Buffer) => {
      const isTooMuch = this.#writes > limits.waitingWrites || tls.writableLength > limits.waitingBytes;
      if (isTooMuch) this.#isHeld = true;
      if (!this.push(chunk) || isTooMuch) tls.pause();
    });
    tls.once("end", () => this.push(null));
    tls.once("error", (error) => this.destroy(error));
    tls.once("close", () => this.destroy());
    tls.pause();
  }

  whenRoom(callback: () => void): void {
    if (this.tls.writableLength > ROOM_BYTES) this.#waiting.push(callback);
    else callback();
  }

  override _read(): void {
    if (!this.#isHeld) this.tls.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#writes += 1;
    this.tls.write(chunk, (error) => this.#taken(1, error));
    done();
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: () => void): void {
    const count = chunks.length;
    this.#writes += count;
    this.tls.cork();
    for (let at = 0; at < count - 1; at += 1) this.tls.write(chunks[at]?.chunk ?? NOTHING);
    this.tls.write(chunks[count - 1]?.chunk ?? NOTHING, (error) => this.#taken(count, error));
    this.tls.uncork();
    done();
  }

  override _final(done: () => void): void {
    this.tls.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.tls.destroy();
    done(error);
  }

  #taken(writes: number, error: Error | null | undefined): void {
    // One that failed is told by the connection's end.
    if (error !== null && error !== undefined) return;
    this.#writes -= writes;
    if (this.tls.writableLength > ROOM_BYTES) return;
    if (this.#waiting.length > 0) for (const callback of this.#waiting.splice(0)) callback();
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.tls.resume();
  }
}

/** Gives a TLS server's connections to an HTTP/2 server. Those that did not agree on HTTP/2 end. */
export function serveSessions(tls: TlsServer, server: Http2Server, limits?: SessionLimits): void {
  tls.on("secureConnection", (socket) => {
    if (socket.alpnProtocol === "h2") server.emit("connection", new SessionSocket(socket, limits));
    else socket.destroy();
  });
}

/** What a session runs over, where it is a {@link SessionSocket}. */
export function sessionSocketOf(session: Http2Session | undefined): SessionSocket | undefined {
  // Node wraps what is no socket of its own.
  const wrapped = session?.socket as (Socket & { readonly stream?: unknown }) | undefined;
  return wrapped?.stream instanceof SessionSocket ? wrapped.stream : undefined;
}
