import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Clock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { openFilesLimit } from "#base/open-files";
import { Places } from "#base/places";
import { type RequestHead, RequestHeadReader } from "#wire/http-connect";
import {
  type AnswerFraming,
  type EndpointAnswer,
  type EndpointRequest,
  encodeHead,
  errorAnswer,
  isPersistent,
  requestOf,
} from "./answer.ts";
import { Incoming } from "./incoming.ts";
import type { ConnectionEnds } from "./metrics-clients.ts";

/** Collaborators of an {@link HttpEndpoint}; `At`: what the caller says of where a connection came in. */
export interface HttpEndpointDeps<At> {
  /** Answers a request; with nothing the connection ends. That it throws is a bug: the connection ends, and `onBug` is called. */
  readonly answer: (
    request: EndpointRequest,
    at: At,
  ) => EndpointAnswer | undefined | Promise<EndpointAnswer | undefined>;
  readonly onBug: (error: unknown) => void;
  /** Asked for each connection before it takes a place; if false, it ends at once. Default: everybody may connect. */
  readonly admits?: ((ends: ConnectionEnds) => boolean) | undefined;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Limits of an {@link HttpEndpoint}. */
export interface HttpEndpointOptions {
  /** Connections at once. Default 64. Never more than a sixteenth of the files that the process may have open, or 4. */
  readonly maxConnections?: number | undefined;
  /** Time for the head of a request, from its first byte, and for the first byte of a connection, in milliseconds. Default 5,000. */
  readonly headMs?: number | undefined;
  /** The time for which a connection may be idle between two requests, in milliseconds. Default 75,000: longer than load balancers pause between probes. */
  readonly idleMs?: number | undefined;
  /** Time in which the client has to take each piece of an answer, and all of one that is no stream, in milliseconds. Default 10,000. */
  readonly readMs?: number | undefined;
}

/** Connections that wait to be accepted: the kernel's own limit (net.core.somaxconn). A client beyond it tries again only after a second. */
const BACKLOG = 4096;
const MAX_HEAD_BYTES = 16_384;
/** A client that has sent more than this ahead of an answer, in bytes, gets no further one on the connection. */
const MAX_AHEAD_BYTES = 16_384;
/** Options of the servers whose connections are accepted here: little is read ahead. */
export const SOCKET_OPTIONS = { allowHalfOpen: true, noDelay: true, highWaterMark: MAX_AHEAD_BYTES } as const;
/** An answer is written in pieces of this size, in bytes: what a client does not read is not handed to the kernel at once. */
const PIECE_BYTES = 65_536;
/** Bytes of answers that wait for their readers, of all connections. Above it, the one that has waited for longest ends. */
export const MAX_HELD_BYTES = 8 * 2 ** 20;
/** The time for which what a client still sends is read and thrown away after an answer that ends its connection, in milliseconds. */
const LINGER_MS = 1000;
/** Shortest time between two lines about connections that could not be accepted, in milliseconds. */
const COMPLAIN_MS = 10_000;

/** Serves connections, on any number of listening sockets, until disposed. */
export class HttpEndpoint<At> implements AsyncDisposable {
  readonly #deps: HttpEndpointDeps<At>;
  readonly #places: Places;
  readonly #options: Required<{ [Key in keyof HttpEndpointOptions]: number }>;
  readonly #servers = new Set<Server>();
  /** Bytes of the answers that are being written; first the one that began first. */
  readonly #held = new Map<Socket, number>();
  #heldBytes = 0;
  #complainedAt = Number.NEGATIVE_INFINITY;

  constructor(deps: HttpEndpointDeps<At>, options: HttpEndpointOptions = {}) {
    this.#deps = deps;
    const { headMs = 5000, idleMs = 75_000, readMs = 10_000 } = options;
    const maxConnections = Math.min(options.maxConnections ?? 64, fewAt(openFilesLimit()));
    this.#options = { maxConnections, headMs, idleMs, readMs };
    this.#places = new Places(maxConnections);
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#places.size;
  }

  /**
   * Listens on an address, an inherited descriptor or a path. `reusePort`: other processes of the user may listen on the address too (SO_REUSEPORT of socket(7)); default
   * false. Rejects with Node.js's error, which has a `code`.
   */
  async listen(
    address: ListenAddress | { readonly fd: number } | { readonly path: string },
    at: At,
    { reusePort = false }: { readonly reusePort?: boolean } = {},
  ): Promise<AsyncDisposable & { readonly port: number }> {
    const server = createServer(SOCKET_OPTIONS);
    const listening = Promise.withResolvers<void>();
    server.once("error", listening.reject);
    // Of a descriptor Node.js takes the length of the queue as an argument alone, and of an address as an option too.
    server.listen({ ...address, reusePort, backlog: BACKLOG }, BACKLOG, listening.resolve);
    await listening.promise;
    server.off("error", listening.reject);
    server.on("connection", (socket) => this.accept(socket, at));
    server.on("error", (error) => this.#complain(error));
    this.#servers.add(server);
    const bound = server.address();
    return {
      port: typeof bound === "object" ? ((bound as AddressInfo | null)?.port ?? 0) : 0,
      [Symbol.asyncDispose]: () => Promise.resolve(this.#close(server)),
    };
  }

  /** Serves a connection. */
  accept(socket: Socket, at: At): void {
    socket.on("error", () => socket.destroy());
    if (this.#deps.admits?.({ from: socket.remoteAddress, to: socket.localAddress }) === false) {
      cut(socket);
      return;
    }
    socket.once("close", () => this.#places.leave(socket));
    const loser = this.#places.take(socket);
    if (loser !== undefined) cut(loser);
    this.#serve(socket, at).catch((error: unknown) => {
      socket.destroy();
      this.#deps.onBug(error);
    });
  }

  /** Stops listening and ends all connections. The ports are free when this returns. */
  [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers) this.#close(server);
    for (const socket of this.#places) socket.destroy();
    return Promise.resolve();
  }

  /** Its connections go on. */
  #close(server: Server): void {
    if (this.#servers.delete(server)) server.close();
  }

  #complain(error: Error): void {
    const { log, clock } = this.#deps;
    if (clock.monotonic() - this.#complainedAt < COMPLAIN_MS) return;
    this.#complainedAt = clock.monotonic();
    log.warn("cannot accept the connection of a probe or scraper", { reason: describeError(error) });
  }

  /** Serves the requests of a connection, one after the other. */
  async #serve(socket: Socket, at: At): Promise<void> {
    const incoming = new Incoming(socket);
    for (let isFirst = true; ; isFirst = false) {
      const head = await this.#head(socket, incoming, { isFirst });
      if (head === undefined) return;
      this.#places.begin(socket);
      const gone = new AbortController();
      const about = { from: socket.remoteAddress, to: socket.localAddress };
      const request = { ...requestOf(head, about), signal: gone.signal };
      const answering = this.#deps.answer(request, at);
      // Only now, as the handler has to listen first: the client may be gone already.
      incoming.whenEnded(() => gone.abort(new DOMException("the client has ended the connection", "AbortError")));
      const answer = await answering;
      if (answer === undefined) return void socket.destroy();
      const stays =
        isPersistent(head) && answer.headers?.["connection"] !== "close" && incoming.aheadBytes <= MAX_AHEAD_BYTES;
      const isOut = await this.#write(socket, answer, {
        isHead: head.method === "HEAD",
        isPersistent: stays,
        canChunk: head.version === "1.1",
      });
      incoming.whenEnded(undefined);
      gone.abort(new DOMException("the answer is out", "AbortError"));
      if (!isOut || !stays) return this.#end(socket, incoming);
      this.#places.end(socket);
      // Others get their turn before the next request of a client that has sent several.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  /** Reads the head of the next request. `undefined`: there is none, and the connection is over. */
  async #head(
    socket: Socket,
    incoming: Incoming,
    { isFirst }: { readonly isFirst: boolean },
  ): Promise<RequestHead | undefined> {
    const reader = new RequestHeadReader({ maxBytes: MAX_HEAD_BYTES });
    const { clock } = this.#deps;
    const { headMs, idleMs } = this.#options;
    let isLate = false;
    let hasBegun = false;
    const limit = (ms: number): (() => void) =>
      clock.after(ms, () => {
        isLate = true;
        incoming.stop();
      });
    let cancel = limit(isFirst ? headMs : idleMs);
    try {
      for (;;) {
        const chunk = await incoming.next();
        if (chunk === undefined) {
          if (isLate && (hasBegun || isFirst)) await this.#refuse(socket, incoming, 408, "the request came too slowly");
          else if (hasBegun && !isLate) await this.#refuse(socket, incoming, 400, "the request is not complete");
          else this.#end(socket, incoming);
          return undefined;
        }
        if (!hasBegun) {
          hasBegun = true;
          cancel();
          cancel = limit(headMs);
        }
        const progress = reader.push(chunk);
        if (progress.kind === "refused") {
          await this.#refuse(socket, incoming, progress.status, progress.body.trimEnd());
          return undefined;
        }
        if (progress.kind === "head") {
          incoming.unread(progress.rest);
          return progress.head;
        }
      }
    } finally {
      cancel();
    }
  }

  async #refuse(socket: Socket, incoming: Incoming, status: number, body: string): Promise<void> {
    await this.#write(socket, errorAnswer(status, body), { isHead: false, isPersistent: false, canChunk: false });
    this.#end(socket, incoming);
  }

  /** Ends our side, and lets what still comes pass for a moment: a reset would take the answer from the client's buffer. */
  #end(socket: Socket, incoming: Incoming): void {
    if (socket.destroyed) return;
    if (incoming.aheadBytes > MAX_AHEAD_BYTES) {
      cut(socket);
      return;
    }
    incoming.drop({ atMost: MAX_AHEAD_BYTES, onMore: () => cut(socket) });
    socket.end();
    const cancel = this.#deps.clock.after(LINGER_MS, () => socket.destroy());
    socket.once("close", cancel);
    incoming.whenEnded(() => socket.destroySoon());
  }

  /** Resolves with true when the kernel has taken all of the answer; false: the client did not read it, or is gone. */
  async #write(
    socket: Socket,
    answer: EndpointAnswer,
    { isHead, isPersistent: stays, canChunk }: { isHead: boolean; isPersistent: boolean; canChunk: boolean },
  ): Promise<boolean> {
    const { body } = answer;
    const date = new Date(this.#deps.clock.now());
    const isStream = typeof body !== "string" && !(body instanceof Uint8Array);
    if (isStream) {
      const framing: AnswerFraming = canChunk ? "chunked" : "close";
      const head = encodeHead(answer, { framing, isPersistent: stays && canChunk, date });
      return (await this.#send(socket, Buffer.from(head))) && (isHead || (await this.#stream(socket, body, framing)));
    }
    const bytes = typeof body === "string" ? Buffer.from(body) : body;
    const head = Buffer.from(
      encodeHead(answer, { framing: "length", length: bytes.length, isPersistent: stays, date }),
    );
    if (isHead || bytes.length === 0) return await this.#send(socket, head);
    // One packet, if it fits; the bytes of a body that several clients get are not copied for each.
    const isSmall = head.length + bytes.length <= PIECE_BYTES;
    if (isSmall) return await this.#send(socket, Buffer.concat([head, bytes]));
    return (await this.#send(socket, head)) && (await this.#send(socket, bytes));
  }

  async #stream(socket: Socket, body: AsyncIterable<Uint8Array>, framing: AnswerFraming): Promise<boolean> {
    const isChunked = framing === "chunked";
    for await (const chunk of body) {
      if (chunk.length === 0) continue;
      const framed = [Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from("\r\n")];
      if (!(await this.#send(socket, isChunked ? Buffer.concat(framed) : chunk))) return false;
    }
    return !isChunked || (await this.#send(socket, Buffer.from("0\r\n\r\n")));
  }

  async #send(socket: Socket, bytes: Uint8Array): Promise<boolean> {
    this.#hold(socket, bytes.length);
    const cancel = this.#deps.clock.after(this.#options.readMs, () => cut(socket));
    try {
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        if (!(await written(socket, bytes.subarray(at, at + PIECE_BYTES)))) return false;
      }
      return true;
    } finally {
      cancel();
      this.#release(socket);
    }
  }

  #hold(socket: Socket, bytes: number): void {
    this.#held.set(socket, bytes);
    this.#heldBytes += bytes;
    for (const [other] of this.#held) {
      if (this.#heldBytes <= MAX_HELD_BYTES || other === socket) return;
      this.#release(other);
      cut(other);
    }
  }

  #release(socket: Socket): void {
    this.#heldBytes -= this.#held.get(socket) ?? 0;
    this.#held.delete(socket);
  }
}

/** The most connections of one server where few files may be open: a program has up to four of these servers, and its own work. */
function fewAt(openFiles: number): number {
  return Math.max(4, Math.floor(openFiles / 16));
}

/** Ends a connection with a reset: the kernel would go on to offer the rest of an answer to a client that does not read it. UNIX sockets know no reset, and offer nothing. */
function cut(socket: Socket): void {
  if (socket.remoteAddress === undefined) socket.destroy();
  else socket.resetAndDestroy();
}

/** Resolves when the kernel has taken the bytes; false: the connection has ended before. */
function written(socket: Socket, bytes: Uint8Array): Promise<boolean> {
  if (socket.destroyed || !socket.writable) return Promise.resolve(false);
  const { promise, resolve } = Promise.withResolvers<boolean>();
  // The callback comes with an error when the socket is destroyed meanwhile.
  socket.write(bytes, (error) => resolve(error === undefined || error === null));
  return promise;
}
