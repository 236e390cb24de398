import type { Http2Server, Http2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import { Duplex } from "node:stream";
import { TLSSocket, Server as TlsServer } from "node:tls";
import { Http2Error } from "#wire/http2";

/** A connection has room again while so much waits for the kernel, bytes. */
const ROOM_BYTES = 256 * 1024;
/** Far beyond what our senders let wait, and beyond any peer's window. */
const LIMITS = { waitingBytes: 32 * 1024 * 1024 };
/** While something is under way, shorter pieces than this are copied together: an answer to SETTINGS has nine bytes. */
const SHORT_BYTES = 2048;
const SLAB_BYTES = 16 * 1024;

/** A peer that asks for answers and does not read them is not read either, while more than this waits for the kernel. */
export interface SessionLimits {
  readonly waitingBytes: number;
}

export interface SessionSocketOptions {
  readonly limits?: SessionLimits | undefined;
  /** What was read of the connection before. */
  readonly first?: Buffer;
  /** What the session is to read in place of what came. An `Http2Error` ends the connection. */
  readonly translate?: (chunk: Buffer) => readonly Buffer[];
}

/** A connection that takes all that it is given. */
export interface SendBacklog {
  /** Calls once: now where little waits for the kernel, else as soon as it does; never where the connection is lost before. */
  whenRoom(callback: () => void): void;
}

/**
 * A connection as an HTTP/2 session of Node is to see it: one that takes all writes at once, and is read meanwhile.
 *
 * Left alone with the connection, a session does not read while a write of its waits for the kernel, so that two of them with much to
 * say to each other both wait for ever. Over TLS, moreover, it never hears of a write that failed: of the connection's end it learns by
 * reading, and after a failed write the TLS layer keeps the next one back for ever, with which reading does not begin again.
 *
 * So whoever sends has to look at {@link SendBacklog} himself.
 */
export class SessionSocket extends Duplex implements SendBacklog {
  /** The connection itself. */
  readonly transport: Socket;
  readonly #limits: SessionLimits;
  readonly #translate: ((chunk: Buffer) => readonly Buffer[]) | undefined;
  #waiting: (() => void)[] = [];
  /** What the session has written while the kernel had something. */
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  /** What the queue's last piece is a part of, when that is one of short ones. */
  #slab: Buffer | undefined;
  #underWayBytes = 0;
  #isHeld = false;
  #onRead: () => void = () => undefined;

  /** Takes the connection over; a TLS one after its handshake. */
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

  whenRoom(callback: () => void): void {
    if (this.backlogBytes > ROOM_BYTES) this.#waiting.push(callback);
    else callback();
  }

  /** Calls each time something has come. */
  whenRead(callback: () => void): void {
    this.#onRead = callback;
  }

  /** Bytes that the kernel has not taken yet. */
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

  /** Everything that waits. */
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
    // One that failed is told by the connection's end.
    if (error !== null && error !== undefined) return;
    this.#underWayBytes -= bytes;
    this.#flush();
    if (this.backlogBytes > ROOM_BYTES) return;
    if (this.#waiting.length > 0) for (const callback of this.#waiting.splice(0)) callback();
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.transport.resume();
  }
}

/** Gives a server's connections to an HTTP/2 server. Those of a TLS server that did not agree on HTTP/2 end. */
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

/** What a session of ours runs over; `undefined` once it has ended. */
export function sessionSocketOf(session: Http2Session | undefined): SessionSocket | undefined {
  // Node wraps what is no socket of its own.
  const wrapped = session?.socket as (Socket & { readonly stream?: unknown }) | undefined;
  return wrapped?.stream instanceof SessionSocket ? wrapped.stream : undefined;
}
