import { ByteQueue } from "#base/collections";
import type { Header } from "../hpack.ts";
import type { StreamState } from "./stream-states.ts";

/** The reason why a stream has ended before both sides had ended it in order, or by RST_STREAM NO_ERROR after that. */
export interface Http2StreamFault {
  /** RFC 9113 section 7. */
  readonly code: number;
  /** `peer`: it has reset the stream. `local`: this side has, for the user or because the peer broke a rule. `connection`: it has ended. */
  readonly origin: "peer" | "local" | "connection";
  readonly message: string;
  /** True if the peer has not acted on the request, so that it may be sent again (RFC 9113 section 8.7). */
  readonly isUnprocessed: boolean;
}

/**
 * The events of a stream, in the order of the wire. They are called within `receive`, `takeOutput` and the methods of the stream, and may call
 * any method except `receive`.
 */
export interface Http2StreamEvents {
  /** The response, on the client. Informational responses (1xx) are left out. */
  onHeaders(headers: readonly Header[]): void;
  /** A part of the data, as a view of the bytes that were received. {@link Http2Stream.consume} must be called for it. */
  onData(bytes: Uint8Array): void;
  /** Trailers; {@link onEnd} follows. */
  onTrailers(headers: readonly Header[]): void;
  /** The peer has ended its side. */
  onEnd(): void;
  /** `bytes` of this stream's data were taken to be written. */
  onSent(bytes: number): void;
  /** Called once, last. `fault` is `undefined` if both sides ended in order. The stream's own `reset` calls it too. */
  onClosed(fault: Http2StreamFault | undefined): void;
}

/** One stream, for its user. Calls after its end change nothing: it may end at any time. */
export interface Http2Stream {
  /** 0 while the peer's limit of concurrent streams holds it back. */
  readonly id: number;
  readonly isClosed: boolean;
  /** Bytes of data that wait to be taken. */
  readonly queuedBytes: number;
  /** Bytes of data that were taken, in all. */
  readonly sentBytes: number;
  /** The number of bytes that may be sent before `sendMarkBytes` bytes wait; 0 if the side has ended. More bytes are accepted, up to `maxQueuedBytes`. */
  readonly sendable: number;
  /**
   * Sends the response, then trailers, which must end the side and are sent after its data. Names are lower-case; each character is a byte.
   * Throws an `Error` (a bug) for any other order.
   */
  sendHeaders(headers: readonly Header[], endStream: boolean): void;
  /** Queues data, which must not change until it is written. Above `maxQueuedBytes` the stream is reset with ENHANCE_YOUR_CALM. */
  sendData(chunks: readonly Uint8Array[], endStream: boolean): void;
  /** Ends the stream at once, with a code of RFC 9113 section 7. Data that waits is dropped. */
  reset(code: number): void;
  /** Resets the stream with NO_ERROR when this side's end has been sent, if the peer has not ended its side by then (RFC 9113 section 8.1). */
  resetAfterEnd(): void;
  /** Says that `bytes` of {@link Http2StreamEvents.onData} are done with: the peer may send as many more. */
  consume(bytes: number): void;
}

/** The part of a connection that its streams call. */
export interface StreamOwner {
  sendHeaders(stream: Stream, headers: readonly Header[], endStream: boolean): void;
  sendData(stream: Stream, chunks: readonly Uint8Array[], endStream: boolean): void;
  reset(stream: Stream, code: number): void;
  consume(stream: Stream, bytes: number): void;
}

/** A stream, for the connection. */
export class Stream implements Http2Stream {
  id = 0;
  state: StreamState = "idle";
  events: Http2StreamEvents;
  /** True once `onClosed` was called. */
  isClosed = false;
  /** The reason why it has closed. */
  fault: Http2StreamFault | undefined = undefined;

  readonly queue = new ByteQueue();
  sendWindow = 0;
  sentBytes = 0;
  /** Bytes that were taken since the last `onSent`. */
  justSent = 0;
  /** The user has sent the request or response. */
  hasSentHead = false;
  /** The user has ended its side; END_STREAM may wait behind data. */
  hasEnded = false;
  /** END_STREAM is in the output. */
  hasSentEnd = false;
  /** Trailers that wait behind data. */
  trailers: readonly Header[] | undefined = undefined;
  /** The head of a request that waits for the peer's limit of streams. */
  pendingHead: readonly Header[] | undefined = undefined;
  resetsAfterEnd = false;
  isReady = false;
  previous: Stream | undefined = undefined;
  next: Stream | undefined = undefined;

  receiveWindow = 0;
  /** Bytes that were handed on and are not consumed. */
  unconsumed = 0;
  /** Bytes that the peer may send again and does not know of yet. */
  credit = 0;
  hasReceivedHead = false;
  /** Bytes that `content-length` promises and that have not come; -1 without. */
  contentLeft = -1;

  readonly #owner: StreamOwner;
  readonly #markBytes: number;

  constructor(owner: StreamOwner, markBytes: number, events: Http2StreamEvents) {
    this.#owner = owner;
    this.#markBytes = markBytes;
    this.events = events;
  }

  get queuedBytes(): number {
    return this.queue.length;
  }

  get sendable(): number {
    return this.isClosed || this.hasEnded ? 0 : Math.max(0, this.#markBytes - this.queue.length);
  }

  sendHeaders(headers: readonly Header[], endStream: boolean): void {
    this.#owner.sendHeaders(this, headers, endStream);
  }

  sendData(chunks: readonly Uint8Array[], endStream: boolean): void {
    this.#owner.sendData(this, chunks, endStream);
  }

  reset(code: number): void {
    this.#owner.reset(this, code);
  }

  resetAfterEnd(): void {
    this.resetsAfterEnd = true;
    if (this.hasSentEnd) this.#owner.reset(this, 0);
  }

  consume(bytes: number): void {
    this.#owner.consume(this, bytes);
  }
}

/** For a stream whose user has not given its events yet. */
export const NO_EVENTS: Http2StreamEvents = {
  onHeaders: () => undefined,
  onData: () => undefined,
  onTrailers: () => undefined,
  onEnd: () => undefined,
  onSent: () => undefined,
  onClosed: () => undefined,
};
