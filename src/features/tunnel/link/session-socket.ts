import type { Http2Server, Http2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import { Duplex } from "node:stream";
import { TLSSocket, Server as TlsServer } from "node:tls";
import { Http2Error } from "#wire/http2";

/** `whenLow` calls back when at most this number of bytes waits for the kernel. */
const LOW_BYTES = 256 * 1024;
/** The default limit is far above what the senders let wait, and above any peer's window. */
const LIMITS = { waitingBytes: 32 * 1024 * 1024 };
/** While a write is under way, pieces shorter than this are copied together: an acknowledgement of SETTINGS has nine bytes. */
const SHORT_BYTES = 2048;
const SLAB_BYTES = 16 * 1024;

/** While more bytes than this wait for the kernel, the peer is not read: the peer causes answers and does not read them. */
export interface SessionLimits {
  readonly waitingBytes: number;
}

export interface SessionSocketOptions {
  readonly limits?: SessionLimits | undefined;
  /** Bytes that were read from the connection before the session takes it over. */
  readonly first?: Buffer;
  /** Transforms the bytes before the session reads them. An `Http2Error` ends the connection. */
  readonly translate?: (chunk: Buffer) => readonly Buffer[];
}

/** The bytes that a connection has taken and the kernel has not. */
export interface SendBacklog {
  /**
   * Calls `callback` once: at once if few bytes wait for the kernel, else as soon as this is true. Never calls it if the connection is lost
   * before.
   */
  whenLow(callback: () => void): void;
}

/**
 * A connection for an HTTP/2 session of Node that takes all writes at once and is read meanwhile.
 *
 * Node.js's session does not read while one of its writes waits for the kernel. Two sessions that both send much would wait for each other
 * without end. Over TLS, moreover, the session gets no event for a failed write, and after it the TLS layer holds back the next write for
 * ever. Then the session does not read again, and never detects that the connection has ended.
 *
 * Because writes always succeed at once, senders must watch {@link SendBacklog}.
 */
export class SessionSocket extends Duplex implements SendBacklog {
  /** The TCP, TLS or UNIX socket. */
  readonly transport: Socket;
  readonly #limits: SessionLimits;
  readonly #translate: ((chunk: Buffer) => readonly Buffer[]) | undefined;
  #waiting: (() => void)[] = [];
  /** Bytes that the session has written while a write was under way. */
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  /** The buffer of the queue's last piece, if that joins short pieces. */
  #slab: Buffer | undefined;
  #underWayBytes = 0;
  #isHeld = false;
  #onRead: () => void = () => undefined;

  /** Takes over the connection; a TLS connection after its handshake. */
  constructor(transport: Socket, options: SessionSocketOptions = {}) {
    super({ allowHalfOpen: true });
    this.transport = transport;
    this.#limits = options.limits ?? LIMITS;
    this.#translate = options.translate;
    if (transport instanceof TLSSocket) transport.disableRenegotiation();
    transport.on("data", (chunk: Buffer) => this.#take(chunk));
    transport.once("end", () => this.push(null));
    transport.once("error", (error) => this.destroy(error));
    transport.once("close", () => this.destroy());
    transport.pause();
    if (options.first !== undefined && options.first.length > 0) this.#take(options.first);
  }

  whenLow(callback: () => void): void {
    if (this.backlogBytes > LOW_BYTES) this.#waiting.push(callback);
    else callback();
  }

  /** Calls `callback` each time bytes were read. */
  whenRead(callback: () => void): void {
    this.#onRead = callback;
  }

  /** Bytes that the kernel has not taken. */
  get backlogBytes(): number {
    return this.#underWayBytes + this.#queuedBytes;
  }

  override _read(): void {
    if (!this.#isHeld) this.transport.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#add(chunk);
    this.#flush();
    done();
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: () => void): void {
    for (const { chunk } of chunks) this.#add(chunk);
    this.#flush();
    done();
  }

  override _final(done: () => void): void {
    this.#write();
    this.transport.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.transport.destroy();
    done(error);
  }

  #take(chunk: Buffer): void {
    this.#onRead();
    if (this.backlogBytes > this.#limits.waitingBytes) this.#isHeld = true;
    let isFull = this.#isHeld;
    try {
      for (const part of this.#translate?.(chunk) ?? [chunk]) if (!this.push(part)) isFull = true;
    } catch (error) {
      if (!(error instanceof Http2Error)) throw error;
      this.destroy(error);
      return;
    }
    if (isFull) this.transport.pause();
  }

  #add(chunk: Buffer): void {
    this.#queuedBytes += chunk.length;
    if (this.#underWayBytes === 0 || chunk.length >= SHORT_BYTES) {
      this.#slab = undefined;
      this.#queue.push(chunk);
      return;
    }
    const last = this.#slab === undefined ? undefined : this.#queue.at(-1);
    if (this.#slab !== undefined && last !== undefined && last.length + chunk.length <= SLAB_BYTES) {
      this.#slab.set(chunk, last.length);
      this.#queue[this.#queue.length - 1] = this.#slab.subarray(0, last.length + chunk.length);
      return;
    }
    this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    this.#slab.set(chunk);
    this.#queue.push(this.#slab.subarray(0, chunk.length));
  }

  #flush(): void {
    if (this.#underWayBytes === 0) this.#write();
  }

  /** Passes everything that waits to the transport. */
  #write(): void {
    const last = this.#queue.pop();
    if (last === undefined) return;
    const pieces = this.#queue;
    const bytes = this.#queuedBytes;
    this.#queue = [];
    this.#slab = undefined;
    this.#queuedBytes = 0;
    this.#underWayBytes += bytes;
    this.transport.cork();
    for (const piece of pieces) this.transport.write(piece);
    this.transport.write(last, (error) => this.#taken(bytes, error));
    this.transport.uncork();
  }

  #taken(bytes: number, error: Error | null | undefined): void {
    // After a failed write the close event of the connection follows.
    if (error !== null && error !== undefined) return;
    this.#underWayBytes -= bytes;
    this.#flush();
    if (this.backlogBytes > LOW_BYTES) return;
    if (this.#waiting.length > 0) for (const callback of this.#waiting.splice(0)) callback();
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.transport.resume();
  }
}

/** Passes a server's connections to an HTTP/2 server. Connections of a TLS server without ALPN `h2` are closed. */
export function serveSessions(server: Server, sessions: Http2Server, limits?: SessionLimits): void {
  if (!(server instanceof TlsServer)) {
    server.on("connection", (socket: Socket) => sessions.emit("connection", new SessionSocket(socket, { limits })));
    return;
  }
  server.on("secureConnection", (socket: TLSSocket) => {
    if (socket.alpnProtocol === "h2") sessions.emit("connection", new SessionSocket(socket, { limits }));
    else socket.destroy();
  });
}

/** The {@link SessionSocket} of a session; `undefined` once the session has ended. */
export function sessionSocketOf(session: Http2Session | undefined): SessionSocket | undefined {
  // Node wraps a stream that is not a net.Socket.
  const wrapped = session?.socket as (Socket & { readonly stream?: unknown }) | undefined;
  return wrapped?.stream instanceof SessionSocket ? wrapped.stream : undefined;
}
