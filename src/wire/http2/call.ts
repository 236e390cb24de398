import { Http2Error } from "./errors.ts";
import { decodeHeaderBlock, encodeHeaderBlock } from "./hpack.ts";

/** One POST. `headers` are sent after the pseudo headers, names lower-case. */
export interface Http2Request {
  readonly path: string;
  readonly authority: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Headers and trailers together (a trailer wins), and the whole body. */
export interface Http2Response {
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Uint8Array;
}

/** Limit of body and headers; above it the call ends with {@link Http2Error} `too-large`. */
export const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;

/** RFC 9113 section 6. */
const FrameType = {
  data: 0,
  headers: 1,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
};
const Flag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 };
const Setting = { headerTableSize: 1, enablePush: 2, initialWindowSize: 4 };
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const MAX_FRAME = 16_384;
const DEFAULT_WINDOW = 65_535;
const STREAM = 1;
const NOTHING = new Uint8Array(0);

/** One request on stream 1 of a new connection: a state machine that is fed the bytes read from the socket. */
export class Http2Call {
  readonly #request: Http2Request;
  readonly #headers = new Map<string, string>();
  readonly #body: Uint8Array[] = [];
  #bodyBytes = 0;
  #pending = new Uint8Array(0);
  #headerBlock: Uint8Array[] = [];
  #endsWithHeaders = false;
  #started = false;
  #sent = 0;
  #connectionWindow = DEFAULT_WINDOW;
  #streamWindow = DEFAULT_WINDOW;
  #peerInitialWindow = DEFAULT_WINDOW;
  #response: Http2Response | undefined;

  constructor(request: Http2Request) {
    this.#request = request;
  }

  /** The response, once the server has ended the stream. */
  get response(): Http2Response | undefined {
    return this.#response;
  }

  /** The first bytes to write: preface, settings, the request's headers and as much body as the windows allow. */
  start(): Uint8Array {
    const { path, authority, headers } = this.#request;
    const block = encodeHeaderBlock([
      [":method", "POST"],
      [":scheme", "http"],
      [":path", path],
      [":authority", authority],
      ...Object.entries(headers),
    ]);
    const settings = [
      ...setting(Setting.headerTableSize, 0),
      ...setting(Setting.enablePush, 0),
      // The window is one byte more than the accepted size, so that a larger body is detected instead of waited for.
      ...setting(Setting.initialWindowSize, MAX_RESPONSE_BYTES + 1),
    ];
    this.#started = true;
    return concat([
      new TextEncoder().encode(PREFACE),
      frame(FrameType.settings, 0, 0, Uint8Array.from(settings)),
      frame(FrameType.windowUpdate, 0, 0, uint32(MAX_RESPONSE_BYTES)),
      ...headerFrames(block),
      ...this.#bodyFrames(),
      // A server may send its settings before the request is sent.
      this.receive(NOTHING),
    ]);
  }

  /** Takes received bytes and returns the bytes to write, possibly none. Throws {@link Http2Error}. */
  receive(chunk: Uint8Array): Uint8Array {
    // Frames after the end of the stream, such as RST_STREAM with NO_ERROR, change nothing (RFC 9113, 8.1).
    if (this.#response !== undefined) return NOTHING;
    this.#pending = this.#pending.length === 0 ? Uint8Array.from(chunk) : concat([this.#pending, chunk]);
    if (!this.#started) return NOTHING;
    const replies: Uint8Array[] = [];
    while (this.#response === undefined) {
      const buffer = this.#pending;
      if (buffer.length < 9) break;
      const view = new DataView(buffer.buffer, buffer.byteOffset);
      const length = view.getUint32(0) >>> 8;
      if (length > MAX_FRAME)
        throw new Http2Error("malformed", `the server sent a frame of ${length} bytes, which is too long`);
      if (buffer.length < 9 + length) break;
      this.#pending = buffer.subarray(9 + length);
      const stream = view.getUint32(5) & 0x7fff_ffff;
      replies.push(...this.#take(buffer[3] ?? 0, buffer[4] ?? 0, stream, buffer.subarray(9, 9 + length)));
    }
    return concat(replies);
  }

  #take(type: number, flags: number, stream: number, payload: Uint8Array): Uint8Array[] {
    const ofStream = type === FrameType.data || type === FrameType.headers || type === FrameType.rstStream;
    if (ofStream && stream !== STREAM) {
      throw new Http2Error("malformed", `the server sent a frame of stream ${stream}, which was not opened`);
    }
    switch (type) {
      case FrameType.settings:
        return (flags & Flag.ack) !== 0 ? [] : this.#takeSettings(payload);
      case FrameType.ping:
        return (flags & Flag.ack) !== 0 ? [] : [frame(FrameType.ping, Flag.ack, 0, payload)];
      case FrameType.windowUpdate:
        return this.#takeWindow(stream, payload);
      case FrameType.headers:
      case FrameType.continuation:
        this.#takeHeaders(type, flags, payload);
        return [];
      case FrameType.data:
        this.#takeData(flags, payload);
        return [];
      case FrameType.rstStream:
        throw new Http2Error("refused", `the server reset the stream (HTTP/2 error ${readUint32(payload, 0)})`);
      case FrameType.goAway:
        if (readUint32(payload, 4) !== 0) {
          throw new Http2Error("refused", `the server closed the connection (HTTP/2 error ${readUint32(payload, 4)})`);
        }
        return [];
      default:
        return []; // RFC 9113 section 5.5: unknown frame types are ignored
    }
  }

  #takeSettings(payload: Uint8Array): Uint8Array[] {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
    for (let at = 0; at + 6 <= payload.length; at += 6) {
      if (view.getUint16(at) !== Setting.initialWindowSize) continue;
      const size = view.getUint32(at + 2);
      this.#streamWindow += size - this.#peerInitialWindow;
      this.#peerInitialWindow = size;
    }
    return [frame(FrameType.settings, Flag.ack, 0, NOTHING), ...this.#bodyFrames()];
  }

  #takeWindow(stream: number, payload: Uint8Array): Uint8Array[] {
    const more = readUint32(payload, 0);
    if (stream === 0) this.#connectionWindow += more;
    else this.#streamWindow += more;
    return this.#bodyFrames();
  }

  #takeHeaders(type: number, flags: number, payload: Uint8Array): void {
    if (type === FrameType.headers) {
      this.#headerBlock = [];
      this.#endsWithHeaders = (flags & Flag.endStream) !== 0;
    }
    this.#headerBlock.push(type === FrameType.headers ? unpad(flags, payload) : payload);
    if (this.#headerBlock.length > 16) throw new Http2Error("too-large", "the server sent too many header frames");
    if ((flags & Flag.endHeaders) === 0) return;
    for (const [name, value] of decodeHeaderBlock(concat(this.#headerBlock))) this.#headers.set(name, value);
    if (this.#endsWithHeaders) this.#end();
  }

  #takeData(flags: number, payload: Uint8Array): void {
    const data = unpad(flags, payload);
    // Padding counts, as it does for the window.
    this.#bodyBytes += payload.length;
    if (this.#bodyBytes > MAX_RESPONSE_BYTES) throw new Http2Error("too-large", "the server's answer is too large");
    this.#body.push(Uint8Array.from(data));
    if ((flags & Flag.endStream) !== 0) this.#end();
  }

  #end(): void {
    this.#response = { headers: this.#headers, body: concat(this.#body) };
  }

  /** DATA frames for as much of the body as both windows allow; the last one ends this side of the stream. */
  #bodyFrames(): Uint8Array[] {
    const { body } = this.#request;
    const frames: Uint8Array[] = [];
    while (this.#sent < body.length) {
      const allowed = Math.min(this.#connectionWindow, this.#streamWindow, MAX_FRAME, body.length - this.#sent);
      if (allowed <= 0) break;
      const last = this.#sent + allowed === body.length;
      frames.push(
        frame(FrameType.data, last ? Flag.endStream : 0, STREAM, body.subarray(this.#sent, this.#sent + allowed)),
      );
      this.#sent += allowed;
      this.#connectionWindow -= allowed;
      this.#streamWindow -= allowed;
    }
    return frames;
  }
}

function headerFrames(block: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = [];
  for (let at = 0; at === 0 || at < block.length; at += MAX_FRAME) {
    const last = at + MAX_FRAME >= block.length;
    const type = at === 0 ? FrameType.headers : FrameType.continuation;
    frames.push(frame(type, last ? Flag.endHeaders : 0, STREAM, block.subarray(at, at + MAX_FRAME)));
  }
  return frames;
}

/** RFC 9113 sections 6.1 and 6.2: optional padding, and in HEADERS an optional priority of five bytes. */
function unpad(flags: number, payload: Uint8Array): Uint8Array {
  const padding = (flags & Flag.padded) === 0 ? 0 : (payload[0] ?? 0);
  const start = ((flags & Flag.padded) === 0 ? 0 : 1) + ((flags & Flag.priority) === 0 ? 0 : 5);
  if (start + padding > payload.length) throw new Http2Error("malformed", "a frame has more padding than content");
  return payload.subarray(start, payload.length - padding);
}

function frame(type: number, flags: number, stream: number, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(9 + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, payload.length * 256 + type);
  bytes[4] = flags;
  view.setUint32(5, stream);
  bytes.set(payload, 9);
  return bytes;
}

function setting(id: number, value: number): Uint8Array {
  return concat([Uint8Array.of(0, id), uint32(value)]);
}

function uint32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

function readUint32(bytes: Uint8Array, at: number): number {
  if (bytes.length < at + 4) throw new Http2Error("malformed", "the server sent a frame that is too short");
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(at) & 0x7fff_ffff;
}

function concat(chunks: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
