import { DrainedMap } from "#base/collections";
import { Http2Error } from "../errors.ts";
import type { Header } from "../hpack.ts";
import { HpackDecoder } from "../hpack-decoder.ts";
import { FrameReader } from "./frame-reader.ts";
import { Flag, FrameType, Http2Code, MAX_STREAM_ID, MAX_WINDOW_BYTES, PREFACE, Setting, uint32At } from "./frames.ts";
import { HeaderBlock } from "./header-block.ts";
import { readHead } from "./message-rules.ts";
import { completeOptions, type Http2Events, type Http2Options, type SpentLimits } from "./options.ts";
import { PeerConduct } from "./peer-conduct.ts";
import { ReceiveFlow } from "./receive-flow.ts";
import { Sender } from "./sender.ts";
import { readSettings } from "./settings.ts";
import {
  type Http2Stream,
  type Http2StreamEvents,
  type Http2StreamFault,
  NO_EVENTS,
  Stream,
  type StreamOwner,
} from "./stream.ts";
import { STREAM_TABLE, type StreamEvent, type StreamVerdict } from "./stream-states.ts";

/** SETTINGS_HEADER_TABLE_SIZE of this side: the default, which is not sent. */
const HEADER_TABLE_BYTES = 4096;
/** The cost of one frame, as `receive` counts it; with headers, whose block is decoded and which is a request on a server; and the bytes of data that cost as much as a frame. */
const FRAME_WORK = 1;
const HEADERS_WORK = 16;
const BYTES_OF_WORK = 4096;
/** Less data than this in a frame that does not end its stream is nearly nothing, in bytes: a gRPC message has a head of five, and a packet of the tunnel six more at least. */
const SHORT_DATA_BYTES = 8;
/** Characters of the peer's text in a GOAWAY that are handed on. */
const MAX_TEXT = 256;

/**
 * One HTTP/2 connection (RFC 9113), for gRPC and CONNECT: bytes in, events and bytes out. It has no socket and no timer. Bounds, failures and the
 * reasons: docs/design/http2.md.
 */
export class Http2Connection {
  readonly #role: "client" | "server";
  readonly #options: Required<Http2Options>;
  readonly #events: Http2Events;
  readonly #reader: FrameReader;
  readonly #sender: Sender;
  readonly #decoder: HpackDecoder;
  readonly #flow: ReceiveFlow;
  readonly #conduct: PeerConduct;
  readonly #block = new HeaderBlock();
  readonly #streams = new DrainedMap<number, Stream>();
  readonly #owner: StreamOwner;
  /** `settings`: the first frame has not come. `closed`: nothing is read any more. */
  #phase: "settings" | "open" | "closed" = "settings";
  /** True while `receive` or `takeOutput` runs: what is written then is announced at its end. */
  #isBusy = false;
  #hasUnread = false;
  #isTaking = false;
  #isAnnounced = false;

  /** The stream of the last DATA frame, found without the map. */
  #hot: Stream | undefined;
  /** The stream to which the DATA frame that is read belongs; `undefined` if its data is dropped. */
  #dataStream: Stream | undefined;
  /** The largest id that the peer has opened. */
  #peerLast = 0;
  /** The next id of this side. */
  #nextId: number;
  /** The largest id of the peer's streams that is served, after a GOAWAY of this side. */
  #servedLast = MAX_STREAM_ID;
  #isPeerLeaving = false;
  #peerMaxStreams = Number.POSITIVE_INFINITY;
  /** Own streams without an id, oldest first. */
  #pending: Stream[] = [];

  /** Preface and settings wait to be taken. Throws `RangeError` (a bug) for an option out of its range. */
  constructor(role: "client" | "server", options: Http2Options, events: Http2Events) {
    const complete = completeOptions(options);
    this.#role = role;
    this.#options = complete;
    this.#events = events;
    this.#reader = new FrameReader({ maxFrameBytes: complete.maxFrameBytes, preface: role === "server" });
    this.#sender = new Sender(complete.maxSentFrameBytes);
    this.#decoder = new HpackDecoder({ maxTableBytes: HEADER_TABLE_BYTES, maxListBytes: complete.maxHeaderListBytes });
    this.#flow = new ReceiveFlow(this.#sender, complete);
    this.#conduct = new PeerConduct(complete);
    this.#nextId = role === "client" ? 1 : 2;
    this.#owner = {
      sendHeaders: (stream, headers, endStream) => this.#sendHeaders(stream, headers, endStream),
      sendData: (stream, chunks, endStream) => this.#sendData(stream, chunks, endStream),
      reset: (stream, code) => this.#resetByUser(stream, code),
      consume: (stream, bytes) => {
        if (stream.isClosed) return;
        this.#flow.consume(stream, bytes);
        this.#announce();
      },
    };
    this.#greet();
  }

  #greet(): void {
    const { streamWindowBytes, maxFrameBytes, maxHeaderListBytes, maxConcurrentStreams } = this.#options;
    if (this.#role === "client") this.#sender.output.copy(PREFACE);
    this.#sender.settings([
      this.#role === "client"
        ? [Setting.enablePush, 0]
        : [Setting.maxConcurrentStreams, Math.min(maxConcurrentStreams, MAX_STREAM_ID)],
      [Setting.initialWindowSize, streamWindowBytes],
      [Setting.maxFrameSize, maxFrameBytes],
      [Setting.maxHeaderListSize, maxHeaderListBytes],
    ]);
    this.#flow.toldSettings(this.#options.clock.monotonic());
    this.#flow.announce();
  }

  /** True if {@link takeOutput} returns bytes. */
  get hasOutput(): boolean {
    return this.#sender.hasOutput;
  }

  /** Bytes besides DATA that wait to be taken: what this side owes the peer. An owner that cannot write should not read above a bound of it. */
  get owedBytes(): number {
    return this.#sender.output.length;
  }

  /** Bytes of data that wait in all streams. */
  get queuedBytes(): number {
    return this.#sender.queuedBytes;
  }

  /** The part of its limits of floods that the peer has used up. */
  get spent(): SpentLimits {
    return this.#conduct.spent;
  }

  /** Received bytes that are not consumed. */
  get unconsumedBytes(): number {
    return this.#flow.unconsumed;
  }

  /** Streams that are open, and own ones that wait. */
  get streams(): number {
    return this.#streams.size + this.#pending.length;
  }

  /** False after a GOAWAY of the peer, a failure or {@link close}: `openStream` throws. */
  get acceptsStreams(): boolean {
    return this.#phase !== "closed" && !this.#isPeerLeaving;
  }

  /**
   * The bytes to write now: views that must be written in this order. At most `maxBytes` and 1 KiB of data; other frames do not wait. An owner
   * writes one batch at a time or a few, and takes the next when one was written. Within an event of this call it returns nothing.
   */
  takeOutput(maxBytes: number): Uint8Array[] {
    // What is taken first is written first: an event of this call takes nothing in between.
    if (this.#isTaking) return [];
    const sender = this.#sender;
    const wasBusy = this.#isBusy;
    this.#isTaking = true;
    this.#isBusy = true;
    const views = sender.take(maxBytes);
    this.#conduct.answersTaken();
    const { touched } = sender;
    for (let index = 0; index < touched.length; index += 1) this.#sent(touched[index] as Stream);
    touched.length = 0;
    this.#isTaking = false;
    this.#isBusy = wasBusy;
    this.#isAnnounced = sender.hasOutput;
    return views;
  }

  #sent(stream: Stream): void {
    const bytes = stream.justSent;
    stream.justSent = 0;
    this.#conduct.sent(bytes);
    if (stream.isClosed) return;
    stream.events.onSent(bytes);
    if (stream.hasSentEnd && !stream.isClosed) this.#endSent(stream);
  }

  /**
   * Takes received bytes, which must not change while views of them are used. Never throws for what a peer has sent. At most about `maxWork` is done (in frames; one with headers counts as 16, and 4 KiB of data as one), and the rest is left for
   * {@link proceed}; default: no bound. Returns what was done.
   */
  receive(bytes: Uint8Array, maxWork: number = Number.POSITIVE_INFINITY): number {
    if (this.#phase === "closed") return 0;
    if (this.#hasUnread) throw new Error("receive is called before earlier bytes are read");
    this.#reader.feed(bytes);
    return this.#work(maxWork);
  }

  /** True if {@link receive} has left bytes. */
  get hasUnread(): boolean {
    return this.#hasUnread && this.#phase !== "closed";
  }

  /** Goes on with the bytes that {@link receive} has left. Returns what was done. */
  proceed(maxWork: number): number {
    return this.hasUnread ? this.#work(maxWork) : 0;
  }

  #work(maxWork: number): number {
    if (this.#isBusy) throw new Error("receive is called within an event");
    this.#isBusy = true;
    try {
      return this.#read(maxWork);
    } finally {
      this.#isBusy = false;
      this.#announce();
    }
  }

  #read(maxWork: number): number {
    const reader = this.#reader;
    let work = 0;
    // An event may call `close`.
    while (!this.#isOver()) {
      if (work >= maxWork) {
        this.#hasUnread = true;
        return work;
      }
      switch (reader.next()) {
        case "data":
          work += reader.payload.length / BYTES_OF_WORK;
          this.#takeData(reader.payload);
          break;
        case "data-head":
          this.#beginData();
          break;
        case "data-end":
          work += FRAME_WORK;
          this.#endData();
          break;
        case "frame":
          work += reader.type === FrameType.headers ? HEADERS_WORK : FRAME_WORK;
          this.#takeFrame();
          break;
        case "more":
          this.#hasUnread = false;
          return work;
        case "fault":
          this.#hasUnread = false;
          this.#fail(reader.faultCode, reader.faultText);
          return work;
      }
    }
    this.#hasUnread = false;
    return work;
  }

  #isOver(): boolean {
    return this.#phase === "closed";
  }

  #announce(): void {
    if (this.#isBusy || this.#isAnnounced || !this.#sender.hasOutput) return;
    this.#isAnnounced = true;
    this.#events.onWantsWrite();
  }

  /**
   * Opens a stream, on the client. If the peer's limit of streams is reached, the stream waits, and what is sent on it. Throws {@link Http2Error}
   * `refused` if too many wait, or if the connection takes no streams any more.
   */
  openStream(headers: readonly Header[], endStream: boolean, events: Http2StreamEvents): Http2Stream {
    if (this.#role !== "client") throw new Error("a server opens no stream");
    if (!this.acceptsStreams || this.#nextId > MAX_STREAM_ID) {
      throw new Http2Error("refused", "the connection takes no streams any more");
    }
    const stream = new Stream(this.#owner, this.#options.sendMarkBytes, events);
    stream.hasSentHead = true;
    stream.hasEnded = endStream;
    stream.pendingHead = headers;
    if (this.#streams.size < this.#peerMaxStreams) this.#activate(stream);
    else if (this.#pending.length < this.#options.maxPendingStreams) this.#pending.push(stream);
    else throw new Http2Error("refused", `${this.#pending.length} streams wait for the peer's limit`);
    this.#announce();
    return stream;
  }

  #activate(stream: Stream): void {
    const head = stream.pendingHead ?? [];
    stream.pendingHead = undefined;
    stream.id = this.#nextId;
    this.#nextId += 2;
    stream.sendWindow = this.#sender.initialWindow;
    stream.receiveWindow = this.#flow.newStreamWindow;
    this.#streams.set(stream.id, stream);
    this.#conduct.opened();
    const isEnd = stream.hasEnded && stream.queue.length === 0 && stream.trailers === undefined;
    this.#move(stream, "send-headers");
    this.#sender.headers(stream, head, isEnd);
    if (isEnd) this.#endSent(stream);
    else if (stream.queue.length > 0) this.#sender.opened(stream);
    else if (stream.trailers !== undefined) this.#sendTrailers(stream, stream.trailers);
  }

  /** Opens streams that wait, as far as the peer's limit allows. */
  #activatePending(): void {
    while (this.#pending.length > 0 && this.#streams.size < this.#peerMaxStreams && this.acceptsStreams) {
      const stream = this.#pending.shift();
      if (stream !== undefined) this.#activate(stream);
    }
  }

  /** Sends a PING with eight bytes; `onPong` has them again. */
  ping(opaque: Uint8Array): void {
    if (opaque.length !== 8) throw new RangeError(`a PING has 8 bytes, not ${opaque.length}`);
    if (this.#isOver()) return;
    this.#sender.ping(opaque, false);
    this.#announce();
  }

  /**
   * Sets the receive window of all streams, open ones too, to `bytes`, at most 2^31-1. A smaller one counts from the peer's acknowledgement on: what it has
   * sent by then is held, and its window is negative until that is consumed. A peer that does not acknowledge it for 30 s loses the connection when it sends.
   */
  setStreamWindow(bytes: number): void {
    if (this.#isOver() || bytes === this.#flow.streamWindow) return;
    if (bytes > MAX_WINDOW_BYTES) throw new RangeError(`a window of ${bytes} bytes is above ${MAX_WINDOW_BYTES}`);
    this.#sender.settings([[Setting.initialWindowSize, bytes]]);
    this.#flow.resizeStreams(bytes, this.#streams.values(), this.#options.clock.monotonic());
    this.#announce();
  }

  /**
   * Tells the peer that this side accepts no streams any more, except those that it has opened. `text` is for people. `lastStream` is 2^31-1 for a
   * first GOAWAY that only announces the next one (RFC 9113 section 6.8).
   */
  goAway(code: number, text = "", lastStream: number = this.#role === "server" ? this.#peerLast : 0): void {
    if (this.#isOver()) return;
    this.#servedLast = Math.min(this.#servedLast, lastStream);
    this.#sender.goAway(this.#servedLast, code, text.slice(0, MAX_TEXT));
    this.#announce();
  }

  /** The transport has ended, or is about to: every stream closes with `message`, and nothing is read or sent any more. */
  close(message: string): void {
    if (this.#isOver()) return;
    this.#phase = "closed";
    this.#sender.output.take();
    this.#closeAll({ code: Http2Code.noError, origin: "connection", message, isUnprocessed: false });
  }

  /** An error of the connection (RFC 9113 section 5.4.1). */
  #fail(code: number, message: string): void {
    if (this.#isOver()) return;
    this.#phase = "closed";
    this.#sender.goAway(Math.min(this.#servedLast, this.#peerLast), code, message.slice(0, MAX_TEXT));
    this.#closeAll({ code, origin: "connection", message, isUnprocessed: false });
    this.#events.onFailed({ code, message });
  }

  #closeAll(fault: Http2StreamFault): void {
    this.#block.clear();
    const unsent = this.#pending;
    this.#pending = [];
    for (const stream of this.#streams.values()) this.#finish(stream, fault);
    for (const stream of unsent) this.#finish(stream, { ...fault, isUnprocessed: true });
  }

  // --- Sending, for a stream's user ---

  #sendHeaders(stream: Stream, headers: readonly Header[], endStream: boolean): void {
    if (stream.isClosed) return;
    if (stream.hasEnded || (stream.hasSentHead && !endStream)) {
      throw new Error(`headers are sent out of order on stream ${stream.id}`);
    }
    if (stream.hasSentHead) {
      stream.hasEnded = true;
      if (stream.queue.length > 0 || stream.id === 0) stream.trailers = headers;
      else this.#sendTrailers(stream, headers);
    } else {
      stream.hasSentHead = true;
      stream.hasEnded = endStream;
      this.#sender.headers(stream, headers, endStream);
      if (endStream) this.#endSent(stream);
    }
    this.#announce();
  }

  #sendTrailers(stream: Stream, trailers: readonly Header[]): void {
    stream.trailers = undefined;
    this.#sender.headers(stream, trailers, true);
    this.#endSent(stream);
  }

  #sendData(stream: Stream, chunks: readonly Uint8Array[], endStream: boolean): void {
    if (stream.isClosed) return;
    if (stream.hasEnded || !stream.hasSentHead) throw new Error(`data is sent out of order on stream ${stream.id}`);
    this.#sender.data(stream, chunks);
    if (endStream) {
      stream.hasEnded = true;
      if (stream.queue.length === 0 && stream.id !== 0) {
        this.#sender.end(stream);
        this.#endSent(stream);
      }
    }
    if (stream.queue.length > this.#options.maxQueuedBytes) {
      this.#abort(
        stream,
        Http2Code.enhanceYourCalm,
        `more than ${this.#options.maxQueuedBytes} bytes wait for the peer`,
      );
    }
    this.#announce();
  }

  /** END_STREAM is in the output. */
  #endSent(stream: Stream): void {
    this.#move(stream, "send-end");
    if (stream.state === "closed") this.#finish(stream, undefined);
    else if (stream.resetsAfterEnd) this.#resetByUser(stream, Http2Code.noError);
  }

  #resetByUser(stream: Stream, code: number): void {
    this.#abort(stream, code, "this side has reset the stream");
    this.#announce();
  }

  /** Ends a stream at once and tells the peer, if it knows the stream. */
  #abort(stream: Stream, code: number, message: string): void {
    if (stream.isClosed) return;
    // Both sides have ended, and the last event of the peer's end is under way.
    if (stream.state === "closed") {
      this.#finish(stream, undefined);
      return;
    }
    if (stream.id === 0) {
      const at = this.#pending.indexOf(stream);
      if (at >= 0) this.#pending.splice(at, 1);
    } else {
      this.#move(stream, "send-reset");
      this.#sender.reset(stream.id, code);
      this.#conduct.remember(stream.id);
    }
    this.#finish(stream, { code, origin: "local", message, isUnprocessed: stream.id === 0 });
  }

  /** The one end of every stream. */
  #finish(stream: Stream, fault: Http2StreamFault | undefined): void {
    if (stream.isClosed) return;
    stream.isClosed = true;
    stream.state = "closed";
    stream.fault = fault;
    if (this.#hot === stream) this.#hot = undefined;
    if (this.#dataStream === stream) this.#dataStream = undefined;
    this.#sender.drop(stream);
    this.#streams.delete(stream.id);
    this.#flow.release(stream);
    if (!this.#isOver()) this.#flow.returnCredit();
    stream.events.onClosed(fault);
    if (this.#pending.length > 0) this.#activatePending();
  }

  /** Moves a stream by the table. Returns the verdict about a frame that the state does not allow. */
  #move(stream: Stream, event: StreamEvent): StreamVerdict | undefined {
    const row = STREAM_TABLE[stream.state][event];
    stream.state = row[0];
    return row[1];
  }

  // --- DATA ---

  #beginData(): void {
    const { stream: id, length } = this.#reader;
    this.#dataStream = undefined;
    if (this.#phase === "settings" || this.#block.stream !== 0 || id === 0) {
      this.#fail(
        Http2Code.protocolError,
        `a DATA frame on stream ${id}, ${this.#phase === "settings" ? "before SETTINGS" : `with the header block of stream ${this.#block.stream} open`}`,
      );
      return;
    }
    if (this.#flow.isOverdue(() => this.#options.clock.monotonic())) {
      this.#fail(Http2Code.settingsTimeout, "the peer has not acknowledged a smaller window for 30 s");
      return;
    }
    if (!this.#flow.begin(length)) {
      this.#fail(Http2Code.flowControlError, `a DATA frame of ${length} bytes exceeds the connection's window`);
      return;
    }
    const hot = this.#hot;
    const stream = hot !== undefined && hot.id === id ? hot : this.#streams.get(id);
    if (stream === undefined) {
      this.#strayFrame(id, "receive-data");
      return;
    }
    const verdict = STREAM_TABLE[stream.state]["receive-data"][1];
    if (verdict !== undefined) this.#judge(stream, verdict, "DATA after the end of the stream");
    else if (!stream.hasReceivedHead) this.#streamError(stream, Http2Code.protocolError, "DATA before the headers");
    else if (length > stream.receiveWindow) {
      this.#streamError(stream, Http2Code.flowControlError, "the peer has sent more than the stream's window");
    } else {
      stream.receiveWindow -= length;
      this.#dataStream = stream;
      this.#hot = stream;
    }
  }

  #takeData(bytes: Uint8Array): void {
    const stream = this.#dataStream;
    if (stream === undefined) return;
    const size = bytes.length;
    if (stream.contentLeft >= 0) {
      stream.contentLeft -= size;
      if (stream.contentLeft < 0) {
        this.#streamError(stream, Http2Code.protocolError, "the data is longer than content-length");
        return;
      }
    }
    this.#flow.hold(stream, size);
    stream.events.onData(bytes);
  }

  #endData(): void {
    const { length, flags, padding } = this.#reader;
    const stream = this.#dataStream;
    this.#dataStream = undefined;
    this.#flow.end(length);
    if (stream === undefined) return;
    if (length - padding < SHORT_DATA_BYTES && (flags & Flag.endStream) === 0 && !this.#spend(1)) return;
    if (padding > 0) this.#flow.giveBack(stream, padding);
    if ((flags & Flag.endStream) !== 0) this.#endReceived(stream);
  }

  #endReceived(stream: Stream): void {
    if (stream.contentLeft > 0) {
      this.#streamError(stream, Http2Code.protocolError, "the data is shorter than content-length");
      return;
    }
    this.#move(stream, "receive-end");
    stream.events.onEnd();
    if (stream.state === "closed") this.#finish(stream, undefined);
  }

  // --- Other frames ---

  #takeFrame(): void {
    const { type, flags, stream, payload } = this.#reader;
    if (this.#phase === "settings") {
      if (type !== FrameType.settings || (flags & Flag.ack) !== 0) {
        this.#fail(
          Http2Code.protocolError,
          `the first frame is of type ${type}${(flags & Flag.ack) === 0 ? "" : " with ACK"}, not SETTINGS`,
        );
        return;
      }
      this.#phase = "open";
    }
    if (this.#block.stream !== 0 && (type !== FrameType.continuation || stream !== this.#block.stream)) {
      this.#fail(
        Http2Code.protocolError,
        `a frame of type ${type} on stream ${stream} interrupts the header block of stream ${this.#block.stream}`,
      );
      return;
    }
    const ofConnection = type === FrameType.settings || type === FrameType.ping || type === FrameType.goAway;
    const ofAny = type === FrameType.windowUpdate || type > FrameType.continuation;
    if (!ofAny && ofConnection !== (stream === 0)) {
      this.#fail(Http2Code.protocolError, `a frame of type ${type} is on stream ${stream}`);
      return;
    }
    switch (type) {
      case FrameType.headers:
        this.#takeHeaders(stream, flags, payload);
        break;
      case FrameType.continuation:
        this.#takeContinuation(stream, flags, payload);
        break;
      case FrameType.windowUpdate:
        this.#takeWindowUpdate(stream, uint32At(payload, 0) & 0x7fff_ffff);
        break;
      case FrameType.rstStream:
        this.#takeReset(stream, uint32At(payload, 0));
        break;
      case FrameType.settings:
        this.#takeSettings(flags, payload);
        break;
      case FrameType.ping:
        this.#takePing(flags, payload);
        break;
      case FrameType.goAway:
        this.#takeGoAway(payload);
        break;
      case FrameType.pushPromise:
        this.#fail(Http2Code.protocolError, "a PUSH_PROMISE, although push is off");
        break;
      default:
        // PRIORITY and unknown types change nothing (RFC 9113 sections 5.3.2 and 5.5).
        this.#spend(1);
    }
  }

  /** Counts frames that carry nothing. Returns false if there were too many, and the connection has failed. */
  #spend(frames: number): boolean {
    if (this.#conduct.idleFrames(frames)) return true;
    this.#fail(Http2Code.enhanceYourCalm, "too many frames without content");
    return false;
  }

  /** Counts an answer that the peer has caused. Returns false if too many wait, and the connection has failed. */
  #owe(): boolean {
    if (this.#conduct.answer()) return true;
    this.#fail(Http2Code.enhanceYourCalm, "the peer causes answers and reads none");
    return false;
  }

  #isIdle(id: number): boolean {
    if ((id & 1) === 0) return true;
    return this.#role === "server" ? id > this.#peerLast : id >= this.#nextId;
  }

  /** A frame of a stream that is not open. */
  #strayFrame(id: number, event: StreamEvent): void {
    const verdict = STREAM_TABLE[this.#isIdle(id) ? "idle" : "closed"][event][1];
    if (verdict?.kind === "connection") {
      this.#fail(verdict.code, `a frame of the idle stream ${id}`);
      return;
    }
    // A new stream has a higher id than those before it, and the peer knows that it has closed this one (RFC 9113 section 5.1.1).
    if (event === "receive-headers" && !this.#isForgotten(id)) {
      this.#fail(Http2Code.protocolError, `HEADERS of the closed stream ${id}`);
      return;
    }
    // Data that was under way costs the peer as much as other data.
    const isFree = event === "receive-data" && this.#reader.length > 0;
    if (!isFree && !this.#spend(1)) return;
    if (verdict?.kind === "stream" && !this.#isForgotten(id)) this.#refuse(id, verdict.code);
  }

  /** True if frames of a closed stream are no fault of the peer: it did not know yet that this side has closed or ignores it. */
  #isForgotten(id: number): boolean {
    return id > this.#servedLast || this.#conduct.remembers(id);
  }

  /** RST_STREAM for a stream that has no state. */
  #refuse(id: number, code: number): void {
    if (!this.#countReset() || !this.#owe()) return;
    this.#sender.reset(id, code);
    this.#conduct.remember(id);
  }

  /** Counts a stream that the peer has caused to be reset, on a server: each cost it a request and us its work. */
  #countReset(): boolean {
    if (this.#role === "client" || this.#conduct.reset()) return true;
    this.#fail(Http2Code.enhanceYourCalm, "too many streams were reset");
    return false;
  }

  /** An error of the stream (RFC 9113 section 5.4.2). */
  #streamError(stream: Stream, code: number, message: string): void {
    if (stream.isClosed || !this.#countReset() || !this.#owe()) return;
    this.#abort(stream, code, message);
  }

  #judge(stream: Stream, verdict: StreamVerdict, message: string): void {
    if (verdict.kind === "connection") this.#fail(verdict.code, message);
    else if (verdict.kind === "stream") this.#streamError(stream, verdict.code, message);
  }

  #takeHeaders(id: number, flags: number, payload: Uint8Array): void {
    const padded = (flags & Flag.padded) !== 0;
    const padding = padded ? (payload[0] ?? 0) : 0;
    const start = (padded ? 1 : 0) + ((flags & Flag.priority) === 0 ? 0 : 5);
    if (start + padding > payload.length) {
      this.#fail(Http2Code.protocolError, `a HEADERS frame of ${payload.length} bytes has more padding than content`);
      return;
    }
    if (this.#role === "server" ? (id & 1) === 0 : this.#isIdle(id)) {
      this.#fail(Http2Code.protocolError, `HEADERS of the stream ${id}, which the peer cannot open`);
      return;
    }
    this.#block.begin(id, (flags & Flag.endStream) !== 0);
    this.#takeBlock(id, flags, payload.subarray(start, payload.length - padding));
  }

  #takeContinuation(id: number, flags: number, payload: Uint8Array): void {
    if (this.#block.stream === 0) this.#fail(Http2Code.protocolError, `CONTINUATION without HEADERS on stream ${id}`);
    else this.#takeBlock(id, flags, payload);
  }

  #takeBlock(id: number, flags: number, part: Uint8Array): void {
    const block = this.#block.add(part, (flags & Flag.endHeaders) !== 0);
    if (block === undefined) return;
    if (block === false) {
      this.#fail(Http2Code.enhanceYourCalm, "a header block is too large or has too many frames");
      return;
    }
    const headers = this.#decode(block);
    if (headers === undefined) return;
    const stream = this.#streams.get(id);
    if (stream !== undefined) this.#takeMessage(stream, headers, this.#block.endStream);
    else if (this.#role === "server" && id > this.#peerLast) this.#takeRequest(id, headers, this.#block.endStream);
    else this.#strayFrame(id, "receive-headers");
  }

  /** The headers of a block; `too-large` if they were dropped; `undefined` if the connection has failed. */
  #decode(block: Uint8Array): readonly Header[] | "too-large" | undefined {
    try {
      return this.#decoder.decode(block);
    } catch (error) {
      if (!(error instanceof Http2Error)) throw error;
      if (error.code === "too-large") return "too-large";
      this.#fail(Http2Code.compressionError, error.message);
      return undefined;
    }
  }

  #takeRequest(id: number, headers: readonly Header[] | "too-large", endStream: boolean): void {
    this.#peerLast = id;
    if (id > this.#servedLast) {
      this.#spend(1);
      return;
    }
    if (this.#sender.output.length > this.#options.maxOwedBytes) {
      this.#fail(
        Http2Code.enhanceYourCalm,
        `the peer makes requests and does not read answers of ${this.#sender.output.length} bytes`,
      );
      return;
    }
    if (this.#streams.size >= this.#options.maxConcurrentStreams) {
      this.#refuse(id, Http2Code.refusedStream);
      return;
    }
    if (headers === "too-large") {
      this.#refuse(id, Http2Code.enhanceYourCalm);
      return;
    }
    const head = readHead(headers, "request");
    if (typeof head === "string" || (endStream && head.contentLength > 0)) {
      this.#refuse(id, Http2Code.protocolError);
      return;
    }
    const stream = new Stream(this.#owner, this.#options.sendMarkBytes, NO_EVENTS);
    stream.id = id;
    stream.sendWindow = this.#sender.initialWindow;
    stream.receiveWindow = this.#flow.newStreamWindow;
    stream.hasReceivedHead = true;
    stream.contentLeft = head.contentLength;
    this.#move(stream, "receive-headers");
    this.#streams.set(id, stream);
    this.#conduct.opened();
    const events = this.#events.onRequest(stream, headers);
    stream.events = events;
    if (stream.isClosed) events.onClosed(stream.fault);
    else if (endStream) this.#endReceived(stream);
  }

  /** A response, or trailers. */
  #takeMessage(stream: Stream, headers: readonly Header[] | "too-large", endStream: boolean): void {
    const verdict = STREAM_TABLE[stream.state]["receive-headers"][1];
    if (verdict !== undefined) {
      this.#judge(stream, verdict, "HEADERS after the end of the stream");
      return;
    }
    if (headers === "too-large") {
      this.#streamError(stream, Http2Code.enhanceYourCalm, "the headers are too large");
      return;
    }
    const isHead = !stream.hasReceivedHead;
    const head = readHead(headers, isHead ? "response" : "trailers");
    if (typeof head === "string") {
      this.#streamError(stream, Http2Code.protocolError, head);
      return;
    }
    const isInformational = isHead && head.status < 200;
    if (isInformational ? endStream : !isHead && !endStream) {
      const what = isInformational ? "an informational response ends" : "trailers do not end";
      this.#streamError(stream, Http2Code.protocolError, `${what} the stream`);
      return;
    }
    if (isInformational) {
      this.#spend(1);
      return;
    }
    stream.hasReceivedHead = true;
    if (isHead) {
      // A response without data, as to HEAD, may have any content-length (RFC 9113 section 8.1.1).
      stream.contentLeft = endStream ? -1 : head.contentLength;
      stream.events.onHeaders(headers);
    } else stream.events.onTrailers(headers);
    if (endStream && !stream.isClosed) this.#endReceived(stream);
  }

  #takeWindowUpdate(id: number, bytes: number): void {
    const stream = id === 0 ? undefined : this.#streams.get(id);
    if (id !== 0 && stream === undefined) {
      this.#strayFrame(id, "receive-window-update");
      return;
    }
    if (!this.#spend(1)) return;
    if (stream === undefined) {
      if (bytes === 0) this.#fail(Http2Code.protocolError, "WINDOW_UPDATE with 0 on the connection");
      else if (!this.#sender.widen(bytes)) {
        this.#fail(
          Http2Code.flowControlError,
          `a WINDOW_UPDATE of ${bytes} bytes puts the connection's window above 2^31-1`,
        );
      }
    } else if (bytes === 0) this.#streamError(stream, Http2Code.protocolError, "WINDOW_UPDATE with 0");
    else if (!this.#sender.widenStream(stream, bytes)) {
      this.#streamError(stream, Http2Code.flowControlError, "the stream's window is above 2^31-1");
    }
  }

  #takeReset(id: number, code: number): void {
    const stream = this.#streams.get(id);
    if (stream === undefined) {
      this.#strayFrame(id, "receive-reset");
      return;
    }
    // A reset after the whole answer took no work from us.
    if (!stream.hasSentEnd && !this.#countReset()) return;
    this.#move(stream, "receive-reset");
    const isUnprocessed = code === Http2Code.refusedStream;
    this.#finish(stream, { code, origin: "peer", message: "the peer has reset the stream", isUnprocessed });
  }

  #takeSettings(flags: number, payload: Uint8Array): void {
    if (!this.#spend(1 + (this.#streams.size >>> 4))) return;
    if ((flags & Flag.ack) !== 0) {
      if (payload.length > 0)
        this.#fail(Http2Code.frameSizeError, `an acknowledgement of SETTINGS has ${payload.length} bytes`);
      else this.#flow.acknowledged(this.#streams.values());
      return;
    }
    const settings = readSettings(payload, this.#role === "client");
    if ("code" in settings) {
      this.#fail(settings.code, settings.text);
      return;
    }
    const { headerTableSize, maxConcurrentStreams, initialWindowSize, maxFrameSize } = settings;
    if (headerTableSize !== undefined) this.#sender.setHeaderTable(headerTableSize);
    if (maxFrameSize !== undefined) this.#sender.setMaxFrame(maxFrameSize);
    if (initialWindowSize !== undefined && !this.#changeWindows(initialWindowSize)) return;
    if (!this.#owe()) return;
    this.#sender.settingsAck();
    if (maxConcurrentStreams !== undefined) {
      this.#peerMaxStreams = maxConcurrentStreams;
      this.#activatePending();
    }
  }

  /** RFC 9113 section 6.9.2. */
  #changeWindows(size: number): boolean {
    const change = size - this.#sender.initialWindow;
    this.#sender.initialWindow = size;
    if (change === 0) return true;
    for (const stream of this.#streams.values()) {
      if (this.#sender.widenStream(stream, change)) continue;
      this.#fail(Http2Code.flowControlError, "SETTINGS_INITIAL_WINDOW_SIZE makes a window larger than 2^31-1");
      return false;
    }
    return true;
  }

  #takePing(flags: number, payload: Uint8Array): void {
    if (!this.#spend(1)) return;
    if ((flags & Flag.ack) !== 0) {
      this.#events.onPong(payload.slice());
      return;
    }
    if (!this.#owe()) return;
    this.#sender.ping(payload, true);
    this.#events.onPing();
  }

  #takeGoAway(payload: Uint8Array): void {
    if (!this.#spend(1)) return;
    if (payload.length < 8) {
      this.#fail(Http2Code.frameSizeError, `a GOAWAY frame has ${payload.length} bytes`);
      return;
    }
    const last = uint32At(payload, 0) & 0x7fff_ffff;
    const code = uint32At(payload, 4);
    const text = String.fromCharCode(...payload.subarray(8, 8 + MAX_TEXT));
    this.#isPeerLeaving = true;
    const unsent = this.#pending;
    this.#pending = [];
    const fault = {
      code,
      origin: "peer",
      message: "the peer has not acted on the stream",
      isUnprocessed: true,
    } as const;
    if (this.#role === "client") {
      for (const stream of this.#streams.values()) if (stream.id > last) this.#finish(stream, fault);
      for (const stream of unsent) this.#finish(stream, fault);
    }
    if (!this.#isOver()) this.#events.onGoAway(code, text);
  }
}
