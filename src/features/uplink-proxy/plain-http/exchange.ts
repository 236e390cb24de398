import { type ByteStream, StreamListeners, type TransportState } from "#base/byte-stream";
import { type BodyFraming, BodyReader, encodeChunk, encodeLastChunk } from "#wire/http1";
import type { CloseReason } from "../relay/index.ts";
import type { AnswerRelay } from "./answer-relay.ts";
import { trailersToPass } from "./hop.ts";

/**
 * Maximum number of bytes of following requests that are read while a request is served. They are read only to notice when the client
 * leaves.
 */
const HELD_BYTES = 65_536;
const NO_BYTES = new Uint8Array(0);

/** The way the exchange ended for the client. */
export type ExchangeEnd =
  /** The answer is sent completely, or the caller may send another answer instead: the caller owns the connection again. */
  | { readonly kind: "over"; readonly rest: Uint8Array }
  /** There is no answer, and no byte was sent to the client: the client can get an error answer. */
  | { readonly kind: "failed"; readonly why: string; readonly rest: Uint8Array }
  /** The request's body is malformed, and no byte of an answer was sent. */
  | { readonly kind: "bad-request"; readonly why: string }
  /** The client's connection is closed, or is about to be. */
  | { readonly kind: "closed" };

/**
 * One request and its answer, as a stream for the tunnel that carries them. Reading the stream gives the request, in the origin's framing;
 * the tunnel writes the origin's answer to it. The client's connection outlives the exchange: bytes after the request's end are never read
 * from this stream, and bytes after the answer's end are not written to the client (docs/spec/uplink-proxy.md#9.3).
 */
export class Exchange extends StreamListeners implements ByteStream {
  readonly #client: ByteStream;
  readonly #answer: AnswerRelay;
  readonly #body: BodyReader;
  readonly #isChunked: boolean;
  readonly #end = Promise.withResolvers<ExchangeEnd>();
  /** Bytes that the client sent after the request. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  #isFlowing = false;
  #isClientEnded = false;
  #isSwitched = false;
  #isEndEmitted = false;
  #isWritingOver = false;
  #isDestroyed = false;
  #isClosed = false;
  #isSettled = false;
  #errored: Error | undefined;
  /** Ends the tunnel in order; known once there is one. */
  #finishTunnel: ((reason: CloseReason) => void) | undefined;
  /** The reason why the tunnel must end; `undefined` while it continues. */
  #reason: CloseReason | undefined;

  constructor(client: ByteStream, framing: BodyFraming, answer: AnswerRelay) {
    super();
    this.#client = client;
    this.#answer = answer;
    this.#body = new BodyReader(framing);
    this.#isChunked = framing.kind === "chunked";
    client.on("data", this.#onClientData);
    client.on("end", this.#onClientEnd);
    client.on("drain", this.#onClientDrain);
    client.on("close", this.#onClientClose);
    if (client.destroyed) this.#onClientClose();
  }

  /** True once the whole body of the request was received. */
  get isRequestWhole(): boolean {
    return this.#body.isDone;
  }

  /** Resolves when the client's connection is free again, or closed. */
  get ended(): Promise<ExchangeEnd> {
    return this.#end.promise;
  }

  /** The part of the body that came with the head, in the origin's framing. */
  takeFirst(rest: Uint8Array): Uint8Array {
    return Buffer.concat(this.#takeRequest(rest));
  }

  /** Call when a tunnel carries the exchange. `finish` ends the tunnel once the whole answer was received. */
  carriedByTunnel(finish: (reason: CloseReason) => void): void {
    this.#finishTunnel = finish;
    if (this.#reason !== undefined) finish(this.#reason);
  }

  /** Call if no tunnel carries the exchange: the caller gets the client's connection back, and the bytes that were read from it. */
  release(): Uint8Array {
    this.#settle(() => ({ kind: "over", rest: this.#rest() }));
    return this.#rest();
  }

  get destroyed(): boolean {
    return this.#isDestroyed;
  }

  get closed(): boolean {
    return this.#isClosed;
  }

  get errored(): Error | undefined {
    return this.#errored;
  }

  get readableEnded(): boolean {
    return this.#isEndEmitted;
  }

  get writableFinished(): boolean {
    return this.#isSwitched ? this.#client.writableFinished : this.#isWritingOver;
  }

  get writableLength(): number {
    return this.#client.writableLength;
  }

  get writableNeedDrain(): boolean {
    return this.#client.writableNeedDrain;
  }

  get remoteAddress(): string {
    return this.#client.remoteAddress;
  }

  get remotePort(): number {
    return this.#client.remotePort;
  }

  get localAddress(): string {
    return this.#client.localAddress;
  }

  get localPort(): number {
    return this.#client.localPort;
  }

  /** Takes bytes of the origin. */
  write(chunk: Uint8Array): boolean {
    if (this.#isDestroyed || this.#isSettled || this.#isWritingOver) return true;
    const wasSwitched = this.#isSwitched;
    this.#toClient(wasSwitched ? [chunk] : this.#answer.push(chunk));
    if (!wasSwitched) this.#onAnswer();
    return !this.#client.writableNeedDrain;
  }

  /** The origin has ended its sending. */
  end(chunk?: Uint8Array): void {
    if (this.#isDestroyed || this.#isSettled || this.#isWritingOver) return;
    if (chunk !== undefined) this.write(chunk);
    if (this.#isSettled) return;
    this.#isWritingOver = true;
    if (this.#isSwitched) {
      this.#client.once("finish", () => this.emit("finish"));
      this.#client.end();
      return;
    }
    this.#toClient(this.#answer.end());
    this.#onAnswer();
  }

  pause(): void {
    this.#isFlowing = false;
    if (this.#isSwitched || !this.#body.isDone) this.#client.pause();
  }

  resume(): void {
    this.#isFlowing = true;
    this.#goOn();
  }

  limitReads(bytes: number): void {
    this.#client.limitReads(bytes);
  }

  keepAlive(idleMs: number, intervalMs?: number): void {
    this.#client.keepAlive(idleMs, intervalMs);
  }

  transport(): TransportState | undefined {
    return this.#client.transport?.();
  }

  destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    // The callback is called later, not within this call, as with sockets.
    queueMicrotask(() => {
      this.#isClosed = true;
      this.emit("close");
    });
    if (!this.#isSettled) this.#giveUp("the connection to the origin was closed");
  }

  reset(): void {
    this.destroy();
  }

  #toClient(pieces: readonly Uint8Array[]): void {
    const [first] = pieces;
    // One write: a packet for each piece would cost more than the copy.
    if (first !== undefined) this.#client.write(pieces.length > 1 ? Buffer.concat(pieces) : first);
  }

  #onAnswer(): void {
    const { state } = this.#answer;
    if (state === "switched") this.#switch();
    else if (state === "malformed") {
      this.#giveUp(this.#answer.fault);
      this.#finish("error");
    } else if (state === "done") {
      this.#settle(() => ({ kind: "over", rest: this.#rest() }));
      this.#finish("eof");
    }
  }

  #finish(reason: CloseReason): void {
    this.#reason = reason;
    this.#finishTunnel?.(reason);
  }

  /** The other protocol has the connection to itself from now on. */
  #switch(): void {
    if (this.#heldBytes > 0) {
      // The client sent these bytes before the protocol had changed, so they are another request, perhaps for another origin.
      this.#client.reset();
      return;
    }
    this.#isSwitched = true;
    this.#goOn();
    if (this.#isClientEnded) this.#emitEnd();
  }

  /** Ends the exchange because the answer cannot be received, or only a part of it. */
  #giveUp(why: string): void {
    if (this.#client.destroyed) this.#settle(() => ({ kind: "closed" }));
    else if (this.#isSwitched || this.#answer.hasBegun) {
      // An orderly end could be taken for the end of the answer.
      this.#settle(() => ({ kind: "closed" }));
      this.#client.reset();
    } else this.#settle(() => ({ kind: "failed", why, rest: this.#rest() }));
  }

  #settle(end: () => ExchangeEnd): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#client.pause();
    this.#client.limitReads(HELD_BYTES);
    this.#client.off("data", this.#onClientData);
    this.#client.off("end", this.#onClientEnd);
    this.#client.off("drain", this.#onClientDrain);
    this.#client.off("close", this.#onClientClose);
    this.#end.resolve(end());
  }

  #rest(): Uint8Array {
    return this.#held.length === 1 ? (this.#held[0] ?? NO_BYTES) : Buffer.concat(this.#held);
  }

  /** The client is read while the tunnel accepts bytes; after the request's end it is read up to the limit of held bytes. */
  #goOn(): void {
    if (this.#isSettled || this.#client.destroyed) return;
    const isWanted = this.#isSwitched || !this.#body.isDone ? this.#isFlowing : this.#heldBytes < HELD_BYTES;
    if (isWanted) this.#client.resume();
    else this.#client.pause();
  }

  readonly #onClientData = (chunk: Uint8Array): void => {
    if (this.#isSwitched) {
      this.emit("data", chunk);
      return;
    }
    for (const piece of this.#takeRequest(chunk)) this.emit("data", piece);
    if (this.#body.isDone) this.#goOn();
  };

  /** Pieces of the request; the bytes after its end are held. */
  #takeRequest(chunk: Uint8Array): Uint8Array[] {
    const out: Uint8Array[] = [];
    if (!this.#body.isDone) {
      const progress = this.#body.push(chunk);
      if (progress.kind === "malformed") {
        this.#badRequest(progress.what);
        return [];
      }
      for (const payload of progress.payload) out.push(...(this.#isChunked ? encodeChunk(payload) : [payload]));
      if (progress.kind === "more") return out;
      if (this.#isChunked) out.push(encodeLastChunk(trailersToPass(progress.trailers)));
      this.#hold(progress.rest);
    } else this.#hold(chunk);
    return out;
  }

  #hold(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#held.push(Uint8Array.prototype.slice.call(bytes));
    this.#heldBytes += bytes.length;
  }

  #badRequest(why: string): void {
    if (this.#answer.hasBegun) {
      this.#settle(() => ({ kind: "closed" }));
      this.#client.reset();
    } else this.#settle(() => ({ kind: "bad-request", why }));
    this.#errored = new Error(`the request is malformed: ${why}`);
    this.destroy();
  }

  readonly #onClientEnd = (): void => {
    this.#isClientEnded = true;
    if (this.#isSwitched) this.#emitEnd();
    else if (!this.#body.isDone) {
      // An incomplete request is not answered (RFC 9112 section 8).
      this.#errored = new Error("the client closed the connection in the middle of its request");
      this.#settle(() => ({ kind: "closed" }));
      this.#client.destroy();
      this.destroy();
    }
  };

  #emitEnd(): void {
    if (this.#isEndEmitted) return;
    this.#isEndEmitted = true;
    this.emit("end");
  }

  readonly #onClientDrain = (): void => this.emit("drain");

  readonly #onClientClose = (): void => {
    this.#errored ??= this.#client.errored;
    this.#settle(() => ({ kind: "closed" }));
    this.destroy();
  };
}
