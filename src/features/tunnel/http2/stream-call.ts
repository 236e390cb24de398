import type { Header, Http2Stream, Http2StreamEvents, Http2StreamFault } from "#wire/http2";
import { HeldBytes } from "./held-bytes.ts";
import type { CallEvents, IncomingCall, Session, StreamEnd } from "./session.ts";

/** RFC 9113 section 7. */
const NO_ERROR = 0;
const CANCEL = 8;

/**
 * The most that the peer may send on a stream that nobody reads yet, in bytes; further ones reset it. A lawful client waits for the headers of the
 * response.
 */
const MAX_EARLY_BYTES = 16 * 1024;

/** Bytes that were queued, and the callback for when they have left. */
interface Sending {
  /** The number of the stream's bytes up to their end. */
  readonly end: number;
  readonly onTaken: () => void;
}

/** The part of a session that its streams use. */
export interface CallOwner extends Session {
  /** The round trip without load, in milliseconds, if it was measured. */
  readonly roundTripMs: number | undefined;
  /** The stream has bytes in the batch that is being made. */
  sending(call: StreamCall): void;
}

/**
 * A stream of an `Http2Connection`. Bytes that come while it is paused are held, and their credit with them, so the peer sends at most a window.
 * No event is called within one of its methods.
 */
export class StreamCall implements IncomingCall, Http2StreamEvents {
  readonly session: CallOwner;
  readonly #onResponse: ((headers: readonly Header[]) => void) | undefined;
  #stream: Http2Stream | undefined;
  #events: CallEvents | undefined;
  #isPaused = false;
  #isFlowDue = false;
  readonly #held = new HeldBytes();
  #earlyBytes = 0;
  #trailers: readonly Header[] | undefined;
  #hasPeerEnded = false;
  #isEndEmitted = false;
  #end: StreamEnd | undefined;
  #isClosed = false;
  #hasEnded = false;
  #whenGone: ((end: StreamEnd) => void)[] = [];
  #queuedBytes = 0;
  #takenBytes = 0;
  #sendings: Sending[] = [];

  /** `onResponse`: on a client, receives the headers of the response. */
  constructor(session: CallOwner, onResponse?: (headers: readonly Header[]) => void) {
    this.session = session;
    this.#onResponse = onResponse;
  }

  /** Sets the stream. Called once, before any event. */
  opened(stream: Http2Stream): void {
    this.#stream = stream;
  }

  get isGone(): boolean {
    return this.#end !== undefined || this.#stream?.isClosed === true;
  }

  get roundTripMs(): number | undefined {
    return this.session.roundTripMs;
  }

  /** Bytes that were handed over to be written. */
  get takenBytes(): number {
    return this.#takenBytes;
  }

  start(events: CallEvents): void {
    this.#events = events;
    this.#flowLater();
  }

  respond(headers: readonly Header[], { isEnd }: { readonly isEnd: boolean }): void {
    if (this.isGone) return;
    this.#stream?.sendHeaders(headers, isEnd);
    if (!isEnd) return;
    this.#hasEnded = true;
    this.#stream?.resetAfterEnd();
  }

  send(pieces: readonly Uint8Array[], bytes: number, onTaken: () => void): boolean {
    if (this.#hasEnded || this.isGone || bytes === 0) return false;
    this.#queuedBytes += bytes;
    this.#sendings.push({ end: this.#queuedBytes, onTaken });
    this.#stream?.sendData(pieces, false);
    return true;
  }

  end(trailers?: readonly Header[]): void {
    if (this.#hasEnded || this.isGone) return;
    this.#hasEnded = true;
    if (trailers === undefined) this.#stream?.sendData([], true);
    else {
      this.#stream?.sendHeaders(trailers, true);
      // Do not wait for the end of the caller's side.
      this.#stream?.resetAfterEnd();
    }
  }

  reset(): void {
    this.#stream?.reset(CANCEL);
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#flowLater();
  }

  whenGone(callback: (end: StreamEnd) => void): void {
    this.#whenGone.push(callback);
  }

  /** For the session: the first `bytes` bytes of the stream were written. */
  written(bytes: number): void {
    const sendings = this.#sendings;
    let done = 0;
    while (done < sendings.length && (sendings[done] as Sending).end <= bytes) done += 1;
    for (const { onTaken } of sendings.splice(0, done)) onTaken();
  }

  onHeaders(headers: readonly Header[]): void {
    this.#onResponse?.(headers);
  }

  onData(bytes: Uint8Array): void {
    if (this.#events === undefined && this.#onResponse === undefined) {
      this.#earlyBytes += bytes.length;
      if (this.#earlyBytes > MAX_EARLY_BYTES) {
        this.#held.clear();
        this.reset();
        return;
      }
    }
    if (this.#isPaused || this.#events === undefined || !this.#held.isEmpty) this.#held.push(bytes);
    else this.#deliver(bytes);
  }

  onTrailers(trailers: readonly Header[]): void {
    this.#trailers = trailers;
    this.#flowLater();
  }

  onEnd(): void {
    this.#hasPeerEnded = true;
    this.#flowLater();
  }

  onSent(bytes: number): void {
    this.#takenBytes += bytes;
    this.session.sending(this);
  }

  onClosed(fault: Http2StreamFault | undefined): void {
    this.#end = this.#endOf(fault);
    if (this.#end.kind !== "done") this.#held.clear();
    this.#flowLater();
  }

  #endOf(fault: Http2StreamFault | undefined): StreamEnd {
    if (fault === undefined) return { kind: "done" };
    if (fault.origin === "connection") return { kind: "lost", reason: fault.message };
    // A server that has answered resets the stream with NO_ERROR, so as not to wait for the client's end (RFC 9113 section 8.1).
    if (fault.code === NO_ERROR && (this.#hasEnded || this.#hasPeerEnded)) return { kind: "done" };
    return { kind: "reset" };
  }

  #deliver(bytes: Uint8Array): void {
    this.#events?.onData(bytes);
    this.#stream?.consume(bytes.length);
  }

  #flowLater(): void {
    if (this.#isFlowDue) return;
    this.#isFlowDue = true;
    process.nextTick(flow, this);
  }

  /** For {@link #flowLater}: calls the events that wait, as far as the user reads. */
  flow(): void {
    this.#isFlowDue = false;
    const events = this.#events;
    if (events !== undefined && !this.#isClosed) {
      this.#held.drain(
        () => !this.#isPaused,
        (piece) => this.#deliver(piece),
      );
      if (this.#held.isEmpty) this.#emitEnd(events);
    }
    if (this.#end !== undefined && (this.#held.isEmpty || events === undefined)) this.#close(this.#end);
  }

  #emitEnd(events: CallEvents): void {
    const trailers = this.#trailers;
    this.#trailers = undefined;
    if (trailers !== undefined) events.onTrailers(trailers);
    if (!this.#hasPeerEnded || this.#isEndEmitted) return;
    this.#isEndEmitted = true;
    if (this.#end === undefined || this.#end.kind === "done") events.onEnd();
  }

  #close(end: StreamEnd): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (end.kind !== "done") this.#sendings = [];
    for (const callback of this.#whenGone.splice(0)) callback(end);
    this.#events?.onClosed(end);
  }
}

function flow(call: StreamCall): void {
  call.flow();
}
