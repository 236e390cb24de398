import { FakeClock } from "#base/clock";
import {
  type Header,
  Http2Code,
  Http2Connection,
  type Http2ConnectionFault,
  type Http2Events,
  type Http2Options,
  type Http2Stream,
  type Http2StreamEvents,
  type Http2StreamFault,
} from "../../index.ts";
import { framesOf, PREFACE_BYTES, type RawFrame, settings } from "./frames.ts";

/** The events of a stream in their order, and the stream. */
export class RecordedStream implements Http2StreamEvents {
  stream: Http2Stream | undefined;
  headers: readonly Header[] | undefined;
  trailers: readonly Header[] | undefined;
  readonly chunks: Uint8Array[] = [];
  bytes = 0;
  ends = 0;
  sent = 0;
  closes = 0;
  fault: Http2StreamFault | undefined;
  /** False: what comes is not consumed. */
  consumes = true;
  /** For tests: this side has sent its head, or its end. */
  headed = false;
  /** It resets itself when it has had so many bytes. */
  resetsAt = Number.POSITIVE_INFINITY;
  ended = false;

  get data(): Buffer {
    return Buffer.concat(this.chunks);
  }

  onHeaders(headers: readonly Header[]): void {
    this.#check();
    this.headers = headers;
  }

  onData(bytes: Uint8Array): void {
    this.#check();
    this.chunks.push(bytes);
    this.bytes += bytes.length;
    if (this.consumes) this.stream?.consume(bytes.length);
    if (this.bytes >= this.resetsAt) this.stream?.reset(Http2Code.cancel);
  }

  onTrailers(headers: readonly Header[]): void {
    this.#check();
    this.trailers = headers;
  }

  onEnd(): void {
    this.#check();
    this.ends += 1;
  }

  onSent(bytes: number): void {
    if (this.closes > 0) throw new Error("an event after onClosed");
    this.sent += bytes;
  }

  onClosed(fault: Http2StreamFault | undefined): void {
    this.closes += 1;
    this.fault = fault;
  }

  #check(): void {
    if (this.closes > 0) throw new Error("an event after onClosed");
    if (this.ends > 0) throw new Error("an event after onEnd");
  }
}

/** A connection, what its user has seen, and the frames that it has sent. */
export class Recorder implements Http2Events {
  readonly clock = new FakeClock();
  readonly connection: Http2Connection;
  readonly requests: { readonly headers: readonly Header[]; readonly seen: RecordedStream }[] = [];
  readonly goAways: { readonly code: number; readonly message: string }[] = [];
  readonly pongs: Uint8Array[] = [];
  pings = 0;
  failure: Http2ConnectionFault | undefined;
  wants = 0;
  /** Called for each request, after it is recorded. */
  answer: (seen: RecordedStream, headers: readonly Header[]) => void = () => undefined;

  constructor(role: "client" | "server", options: Partial<Http2Options> = {}) {
    this.connection = new Http2Connection(role, { clock: this.clock, ...options }, this);
  }

  onWantsWrite(): void {
    this.wants += 1;
  }

  onRequest(stream: Http2Stream, headers: readonly Header[]): RecordedStream {
    const seen = new RecordedStream();
    seen.stream = stream;
    this.requests.push({ headers, seen });
    this.answer(seen, headers);
    return seen;
  }

  onGoAway(code: number, message: string): void {
    this.goAways.push({ code, message });
  }

  onPing(): void {
    this.pings += 1;
  }

  onPong(opaque: Uint8Array): void {
    this.pongs.push(opaque);
  }

  onFailed(fault: Http2ConnectionFault): void {
    if (this.failure !== undefined) throw new Error("a connection has failed twice");
    this.failure = fault;
  }

  open(headers: readonly Header[], endStream = false): RecordedStream {
    const seen = new RecordedStream();
    seen.stream = this.connection.openStream(headers, endStream, seen);
    return seen;
  }

  /** Feeds bytes and returns the frames that are sent then. */
  feed(...chunks: readonly Uint8Array[]): RawFrame[] {
    for (const chunk of chunks) this.connection.receive(chunk);
    return this.take();
  }

  /** The frames that wait. */
  take(maxBytes = Number.POSITIVE_INFINITY): RawFrame[] {
    return framesOf(Buffer.concat(this.connection.takeOutput(maxBytes)));
  }
}

/** A server that has had the client's preface and settings; its own greeting is taken. */
export function openServer(options: Partial<Http2Options> = {}, ...own: (readonly [number, number])[]): Recorder {
  const server = new Recorder("server", options);
  server.feed(PREFACE_BYTES, settings(...own));
  return server;
}

/** A client that has had the server's settings; its own greeting is taken. */
export function openClient(options: Partial<Http2Options> = {}, ...own: (readonly [number, number])[]): Recorder {
  const client = new Recorder("client", options);
  client.feed(settings(...own));
  return client;
}

/** Moves bytes between two connections until neither has any. `cut` is the size of a read, in bytes. */
export function exchange(one: Recorder, other: Recorder, cut = Number.POSITIVE_INFINITY, maxBatch = 65_536): void {
  for (let moved = true; moved; ) {
    moved = false;
    for (const [from, to] of [
      [one, other],
      [other, one],
    ] as const) {
      const bytes = Buffer.concat(from.connection.takeOutput(maxBatch));
      moved ||= bytes.length > 0;
      for (let at = 0; at < bytes.length; at += cut) to.connection.receive(bytes.subarray(at, at + cut));
    }
  }
}
