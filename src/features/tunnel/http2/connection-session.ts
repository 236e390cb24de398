import type { Clock } from "#base/clock";
import {
  type Header,
  Http2Code,
  Http2Connection,
  type Http2ConnectionFault,
  type Http2Events,
  type Http2Stream,
  type Http2StreamEvents,
  type SpentLimits,
} from "#wire/http2";
import type { Reservation } from "../mux/window-pool.ts";
import type { Call, ClientSession, IncomingCall, SessionSettings } from "./session.ts";
import { type CallOwner, StreamCall } from "./stream-call.ts";
import type { Transport, TransportEvents } from "./transport.ts";
import { WindowTuner } from "./window-tuner.ts";
import { MAX_FRAME_BYTES, SESSION_WINDOW_BYTES } from "./windows.ts";

/** About this number of bytes is handed to the socket at once. */
const BATCH_BYTES = 256 * 1024;
/** Batches under way. With one, nothing is encrypted while the kernel takes bytes. */
const MAX_UNDER_WAY = 2;
/** While more bytes besides data wait to be written, the peer is not read: it causes answers and does not read them. */
const MAX_OWED_BYTES = 256 * 1024;
/** The work that a session may do in one turn of the event loop, in frames (`Http2Connection.receive`): half a MiB of data, or some tenths of a millisecond of frames that carry little. */
const TURN_WORK = 128;
/** PINGs of this side that wait for their answers. */
const MAX_PINGS = 10;
/** The time that a peer may take to read the last bytes of a session that has failed, in milliseconds. */
const LINGER_MS = 1000;
/** Bytes that wait on a stream. The senders stop far below; only the end of a link queues more, at most what the process may buffer. */
const MAX_QUEUED_BYTES = 1024 * 1024 * 1024;
/** A burst of resets lasts this number of seconds. */
const RESET_BURST_S = 10;
/** A client that sends nothing for so long, in milliseconds, gets the server's settings: it may wait for them. */
const GREETING_MS = 50;
/** As the last stream of a GOAWAY: none is refused (RFC 9113 section 6.8). */
const MAX_STREAM_ID = 0x7fff_ffff;
const PING = new Uint8Array(8);
const NOTHING = new Uint8Array(0);
/** A PING that measures the round trip. */
const MEASURE = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

interface Batch {
  /** The streams with bytes in the batch, and the number of each stream's bytes up to the batch's end. */
  readonly calls: StreamCall[];
  readonly marks: number[];
}

export interface ConnectionSessionOptions {
  readonly settings: SessionSettings;
  readonly clock: Clock;
}

/** A session: an `Http2Connection` on a transport. */
export class ConnectionSession implements ClientSession, CallOwner, Http2Events, TransportEvents {
  readonly transport: Transport;
  readonly #connection: Http2Connection;
  readonly #clock: Clock;
  /** Absent if the window of streams is constant. */
  readonly #tuner: WindowTuner | undefined;
  /** The part of the window above that of a near link. */
  readonly #reservation: Reservation | undefined;
  #handle: ((call: IncomingCall, headers: readonly Header[]) => void) | undefined;
  #batch: StreamCall[] = [];
  #underWay = 0;
  #isFlushDue = false;
  /** True while a server has not written anything, and waits for its client. */
  #isSilent = true;
  #cancelGreeting: (() => void) | undefined;
  #isReceiving = false;
  #isHeld = false;
  /** The work that this turn of the event loop may still do. */
  #workLeft = TURN_WORK;
  #isTurnDue = false;
  /** True while received bytes wait for the next turn, and the transport is paused. */
  #isBehind = false;
  /** Reads that came meanwhile. */
  #backlog: Uint8Array[] = [];
  #isDestroyed = false;
  #isExpelled = false;
  #bytesRead = 0;
  #bytesWritten = 0;
  #pings = 0;
  #onRead: (() => void) | undefined;
  #onPing: (() => void) | undefined;
  #onClosed: (() => void)[] = [];
  #onFailed: ((why: string, isFlood: boolean) => void) | undefined;
  #onLeaving: (() => void) | undefined;
  #isPeerLeaving = false;
  /** The reason why the peer ends the connection, if its GOAWAY tells an error. */
  #farewell: string | undefined;

  /** Takes over the transport. */
  constructor(transport: Transport, role: "client" | "server", { settings, clock }: ConnectionSessionOptions) {
    this.transport = transport;
    this.#clock = clock;
    const { streamWindowBytes: maxBytes, maxConcurrentStreams, maxUnconsumedBytes, resetsPerSecond } = settings;
    const firstBytes = settings.firstWindowBytes ?? maxBytes;
    const nearBytes = settings.nearWindowBytes ?? maxBytes;
    this.#reservation = settings.windows?.reservation(() => this.#narrow(nearBytes));
    const mayGrow = (more: number, to: number): boolean =>
      this.#reservation === undefined || to <= nearBytes || this.#reservation.grow(more);
    this.#tuner = firstBytes < maxBytes ? new WindowTuner({ firstBytes, maxBytes, mayGrow }) : undefined;
    this.#connection = new Http2Connection(
      role,
      {
        clock,
        streamWindowBytes: firstBytes,
        connectionWindowBytes: SESSION_WINDOW_BYTES,
        maxFrameBytes: MAX_FRAME_BYTES,
        maxSentFrameBytes: MAX_FRAME_BYTES,
        maxConcurrentStreams: maxConcurrentStreams ?? Number.MAX_SAFE_INTEGER,
        maxQueuedBytes: MAX_QUEUED_BYTES,
        ...(maxUnconsumedBytes === undefined ? {} : { maxUnconsumedBytes }),
        ...(settings.spentBy === undefined ? {} : { spent: settings.spentBy(transport.peer()) }),
        ...(resetsPerSecond === undefined ? {} : { resetsPerSecond, resetBurst: RESET_BURST_S * resetsPerSecond }),
      },
      this,
    );
    transport.start(this);
    // A client speaks first. What a server has to say goes with its answer to that: one write fewer for each connection.
    if (role === "client") this.#isSilent = false;
    else this.#cancelGreeting = clock.after(GREETING_MS, () => this.#greet(), { unref: true });
    this.#flushLater();
  }

  get isDestroyed(): boolean {
    return this.#isDestroyed;
  }

  get spent(): SpentLimits {
    return this.#connection.spent;
  }

  get roundTripMs(): number | undefined {
    return this.#tuner?.roundTripMs;
  }

  get bytesRead(): number {
    return this.#isDestroyed ? 0 : this.#bytesRead;
  }

  get bytesWritten(): number {
    return this.#isDestroyed ? 0 : this.#bytesWritten;
  }

  /** Sets the handler of the peer's streams. */
  serve(handle: (call: IncomingCall, headers: readonly Header[]) => void): void {
    this.#handle = handle;
  }

  request(headers: readonly Header[], onResponse: (headers: readonly Header[]) => void): Call {
    const call = new StreamCall(this, onResponse);
    call.opened(this.#connection.openStream(headers, false, call));
    return call;
  }

  whenRead(callback: () => void): void {
    this.#onRead = callback;
  }

  whenPing(callback: () => void): void {
    this.#onPing = callback;
  }

  whenClosed(callback: () => void): void {
    this.#onClosed.push(callback);
  }

  whenFailed(callback: (why: string, isFlood: boolean) => void): void {
    this.#onFailed = callback;
  }

  whenLeaving(callback: () => void): void {
    if (this.#isPeerLeaving) queueMicrotask(callback);
    else this.#onLeaving = callback;
  }

  ping(): boolean {
    if (this.#pings >= MAX_PINGS) return false;
    this.#pings += 1;
    this.#connection.ping(PING);
    return true;
  }

  announceLeaving(): void {
    if (!this.#isDestroyed) this.#connection.goAway(Http2Code.noError, "", MAX_STREAM_ID);
  }

  expel(text: string, code: number = Http2Code.enhanceYourCalm): void {
    // What came in the same read is still handled, such as further PINGs.
    if (this.#isExpelled) return;
    this.#isExpelled = true;
    // With a smaller last stream the peer would drop its streams before it reads why.
    this.#connection.goAway(code, text, MAX_STREAM_ID);
    this.#onFailed?.(`${nameOf(code)}: ${text}`, false);
    queueMicrotask(() => this.#endSoftly());
  }

  destroy(): void {
    if (this.#isDestroyed) return;
    if (this.#isReceiving) {
      queueMicrotask(() => this.destroy());
      return;
    }
    // What the kernel takes at once is sent, such as the reset of a stream.
    this.#flush();
    this.#end("this side has closed the connection");
    this.transport.destroy();
  }

  sending(call: StreamCall): void {
    this.#batch.push(call);
  }

  onWantsWrite(): void {
    this.#flushLater();
  }

  onRequest(stream: Http2Stream, headers: readonly Header[]): Http2StreamEvents {
    const call = new StreamCall(this);
    call.opened(stream);
    this.#handle?.(call, headers);
    return call;
  }

  onGoAway(code: number, text: string): void {
    if (code !== Http2Code.noError) {
      this.#farewell = `the peer has ended the connection with ${nameOf(code)}${text === "" ? "" : `: ${text}`}`;
    }
    if (this.#isPeerLeaving) return;
    this.#isPeerLeaving = true;
    this.#onLeaving?.();
  }

  onPing(): void {
    this.#onPing?.();
  }

  onPong(opaque: Uint8Array): void {
    if (opaque[0] !== MEASURE[0]) {
      this.#pings = Math.max(0, this.#pings - 1);
      return;
    }
    const window = this.#tuner?.answered(this.#bytesRead, this.#clock.monotonic());
    if (window !== undefined) this.#connection.setStreamWindow(window);
  }

  onFailed({ code, message }: Http2ConnectionFault): void {
    this.#onFailed?.(`${nameOf(code)}: ${message}`, code === Http2Code.enhanceYourCalm);
    queueMicrotask(() => this.#endSoftly());
  }

  onData(chunk: Uint8Array): void {
    this.#bytesRead += chunk.length;
    this.#onRead?.();
    if (this.#isSilent) this.#greet();
    if (this.#isBehind) {
      this.#backlog.push(chunk);
      return;
    }
    this.#receive(chunk, this.#workLeft);
    if (this.#connection.hasUnread) this.#fallBehind();
  }

  onLost(reason: string): void {
    if (this.#isDestroyed) return;
    // What came before the end counts.
    while (this.#isBehind && !this.#isDestroyed) this.#readOn(Number.POSITIVE_INFINITY);
    if (this.#isDestroyed) return;
    this.#end(this.#farewell ?? reason);
    this.transport.destroy();
  }

  /** Hands bytes on, or those that were left if there are none. At most about `maxWork` is done. */
  #receive(chunk: Uint8Array | undefined, maxWork: number): void {
    this.#isReceiving = true;
    const work = chunk === undefined ? this.#connection.proceed(maxWork) : this.#connection.receive(chunk, maxWork);
    this.#isReceiving = false;
    this.#workLeft -= work;
    if (2 * this.#workLeft < TURN_WORK) this.#renewLater();
    this.#measure();
    this.#reservation?.touch();
    if (this.#connection.owedBytes <= MAX_OWED_BYTES || this.#underWay === 0) return;
    this.#isHeld = true;
    this.transport.pause();
  }

  /** The next turn has its own work. A peer that sends little may so have a little more than one turn's. */
  #renewLater(): void {
    if (this.#isTurnDue) return;
    this.#isTurnDue = true;
    setImmediate(() => {
      this.#isTurnDue = false;
      this.#workLeft = TURN_WORK;
      if (this.#isBehind && !this.#isHeld) this.#readOn(TURN_WORK);
    });
  }

  /** Others have their turn before the rest is read. */
  #fallBehind(): void {
    this.#isBehind = true;
    this.transport.pause();
    this.#renewLater();
  }

  /** Goes on with bytes that have waited. */
  #readOn(maxWork: number): void {
    if (this.#isDestroyed) {
      this.#isBehind = false;
      return;
    }
    if (this.#connection.hasUnread) this.#receive(undefined, maxWork);
    else this.#receive(this.#backlog.shift() ?? NOTHING, maxWork);
    if (this.#connection.hasUnread || this.#backlog.length > 0) {
      this.#renewLater();
      return;
    }
    this.#isBehind = false;
    if (!this.#isHeld) this.transport.resume();
  }

  #measure(): void {
    if (this.#tuner?.isDue(this.#bytesRead) !== true) return;
    this.#tuner.sent(this.#bytesRead, this.#clock.monotonic());
    this.#connection.ping(MEASURE);
  }

  /** Others have what the window had above that of a near link: the peer must not go on with it. */
  #narrow(bytes: number): void {
    if (this.#isDestroyed) return;
    this.#tuner?.shrunk(bytes);
    this.#connection.setStreamWindow(bytes);
  }

  #greet(): void {
    this.#isSilent = false;
    this.#cancelGreeting?.();
    this.#cancelGreeting = undefined;
    this.#flushLater();
  }

  /** Writes all frames of one tick together. */
  #flushLater(): void {
    if (this.#isSilent || this.#isFlushDue || this.#underWay >= MAX_UNDER_WAY) return;
    this.#isFlushDue = true;
    queueMicrotask(() => {
      this.#isFlushDue = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (!this.#isDestroyed && this.#underWay < MAX_UNDER_WAY && this.#connection.hasOutput) {
      this.#write(this.#connection.takeOutput(BATCH_BYTES));
    }
    if (!this.#isHeld || this.#connection.owedBytes > MAX_OWED_BYTES) return;
    this.#isHeld = false;
    if (this.#isBehind) this.#renewLater();
    else this.transport.resume();
  }

  #write(views: readonly Uint8Array[]): void {
    const batch: Batch = { calls: this.#batch, marks: this.#batch.map((call) => call.takenBytes) };
    this.#batch = [];
    this.#underWay += 1;
    for (const { length } of views) this.#bytesWritten += length;
    this.transport.write(views, () => this.#written(batch));
  }

  #written({ calls, marks }: Batch): void {
    this.#underWay -= 1;
    for (let at = 0; at < calls.length; at += 1) calls[at]?.written(marks[at] ?? 0);
    this.#flush();
  }

  /** Ends the session after the bytes that wait; they tell the peer why. */
  #endSoftly(): void {
    if (this.#isDestroyed) return;
    this.#flush();
    this.#end("this side has closed the connection");
    this.transport.closeSoon(LINGER_MS);
  }

  #end(reason: string): void {
    this.#isDestroyed = true;
    this.#isBehind = false;
    this.#backlog = [];
    this.#cancelGreeting?.();
    this.#reservation?.release();
    this.#connection.close(reason);
    for (const callback of this.#onClosed.splice(0)) callback();
  }
}

/** The name of an error code, as in RFC 9113 section 7. */
function nameOf(code: number): string {
  const key = Object.entries(Http2Code).find(([, known]) => known === code)?.[0];
  return key?.replace(/[A-Z]/g, "_$&").toUpperCase() ?? `error code ${code}`;
}
