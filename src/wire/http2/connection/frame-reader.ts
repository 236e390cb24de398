import { Flag, FRAME_HEAD_BYTES, FrameType, Http2Code, NOTHING, PREFACE, uint32At } from "./frames.ts";

/**
 * - `more`: every byte was read.
 * - `data-head`: a DATA frame begins. `data`: a part of its data is in `payload`. `data-end`: it has ended, its padding too.
 * - `frame`: another frame is complete. Its payload is in `payload`; that of PRIORITY and of unknown types is left out.
 * - `fault`: the bytes break the protocol; nothing can be read any more.
 */
export type ReadEvent = "more" | "data-head" | "data" | "data-end" | "frame" | "fault";

/** Limit of a frame that is not DATA, in bytes. Such frames are kept whole. */
export const MAX_WHOLE_BYTES = 65_536;
/** The first size of the buffer for a frame that comes in parts, in bytes. It grows with the bytes that have come. */
const FIRST_BUFFER_BYTES = 256;
/** Methods of HTTP/1.1 by which a request is told (RFC 9110 section 9.3). */
const HTTP1_METHODS: readonly string[] = [
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "DELETE",
  "CONNECT",
  "OPTIONS",
  "TRACE",
  "PATCH",
];

type Step = "preface" | "head" | "padding-length" | "data" | "padding" | "payload" | "skip" | "fault";

/**
 * Cuts bytes into frames (RFC 9113 section 4). Payload is a view of the bytes that were fed, except that of a frame other than DATA which
 * came in parts. Holds at most {@link MAX_WHOLE_BYTES}.
 */
export class FrameReader {
  type = 0;
  flags = 0;
  stream = 0;
  /** Bytes of the payload, padding included. */
  length = 0;
  /** Valid until the next call of {@link next}, which drops it if all bytes were read; DATA stays as long as the bytes that were fed. */
  payload: Uint8Array = NOTHING;
  /** Bytes of padding of the present DATA frame, its length field included. Valid from `data` on. */
  padding = 0;
  faultCode = 0;
  faultText = "";

  readonly #maxFrameBytes: number;
  /** A head that comes in parts. Made for the first one. */
  #head: Uint8Array = NOTHING;
  #bytes: Uint8Array = NOTHING;
  #at = 0;
  #step: Step;
  /** Bytes of the head, preface or whole payload that have been read. */
  #have = 0;
  /** Bytes of data, padding or skipped payload that are missing. */
  #left = 0;
  #partial: Uint8Array = NOTHING;

  /** `maxFrameBytes`: the SETTINGS_MAX_FRAME_SIZE that was sent. `preface`: true for the side of a server. */
  constructor(options: { readonly maxFrameBytes: number; readonly preface: boolean }) {
    this.#maxFrameBytes = options.maxFrameBytes;
    this.#step = options.preface ? "preface" : "head";
  }

  /** The next bytes. All earlier ones must have been read: {@link next} has returned `more`. */
  feed(bytes: Uint8Array): void {
    this.#bytes = bytes;
    this.#at = 0;
  }

  /** Reads up to the next event. */
  next(): ReadEvent {
    for (;;) {
      switch (this.#step) {
        case "head": {
          if (!this.#readHead()) return this.#more();
          const event = this.#begin();
          if (event !== undefined) return event;
          break;
        }
        case "data": {
          const left = this.#left;
          if (left === 0) {
            this.#left = this.padding > 0 ? this.padding - 1 : 0;
            this.#step = "padding";
            break;
          }
          const bytes = this.#bytes;
          const at = this.#at;
          const size = Math.min(left, bytes.length - at);
          if (size === 0) return this.#more();
          this.payload = bytes.subarray(at, at + size);
          this.#at = at + size;
          this.#left = left - size;
          return "data";
        }
        case "padding":
          if (!this.#skip()) return this.#more();
          this.#step = "head";
          return "data-end";
        case "padding-length": {
          const size = this.#bytes[this.#at];
          if (size === undefined) return this.#more();
          this.#at += 1;
          if (size >= this.length) return this.#fail(Http2Code.protocolError, "a frame has more padding than content");
          this.padding = size + 1;
          this.#left = this.length - this.padding;
          this.#step = "data";
          break;
        }
        case "payload":
          if (!this.#readPayload()) return this.#more();
          this.#step = "head";
          return "frame";
        case "skip":
          if (!this.#skip()) return this.#more();
          this.payload = NOTHING;
          this.#step = "head";
          return "frame";
        case "preface":
          if (!this.#readPreface()) {
            if (this.#at < this.#bytes.length) return this.#fail(Http2Code.protocolError, this.#wrongPreface());
            return this.#more();
          }
          this.#have = 0;
          this.#step = "head";
          break;
        case "fault":
          return "fault";
      }
    }
  }

  /** The bytes are not held any longer. */
  #more(): "more" {
    this.#bytes = NOTHING;
    this.#at = 0;
    this.payload = NOTHING;
    return "more";
  }

  #fail(code: number, text: string): "fault" {
    this.faultCode = code;
    this.faultText = text;
    this.#step = "fault";
    this.#bytes = NOTHING;
    this.#partial = NOTHING;
    return "fault";
  }

  #readPreface(): boolean {
    while (this.#have < PREFACE.length && this.#bytes[this.#at] === PREFACE[this.#have]) {
      this.#at += 1;
      this.#have += 1;
    }
    return this.#have === PREFACE.length;
  }

  /** Says what came in place of the preface: its first bytes, as text. */
  #wrongPreface(): string {
    const before = PREFACE.subarray(0, this.#have);
    const found = Buffer.concat([before, this.#bytes.subarray(this.#at, this.#at + PREFACE.length - this.#have)]);
    const text = found.toString("latin1");
    const what = HTTP1_METHODS.includes(text.slice(0, text.indexOf(" "))) ? ", an HTTP/1.1 request," : "";
    return `the client sent ${JSON.stringify(text)}${what} in place of HTTP/2's preface`;
  }

  #readHead(): boolean {
    const bytes = this.#bytes;
    const at = this.#at;
    if (this.#have === 0 && bytes.length - at >= FRAME_HEAD_BYTES) {
      this.#at = at + FRAME_HEAD_BYTES;
      this.#parse(bytes, at);
      return true;
    }
    const size = Math.min(FRAME_HEAD_BYTES - this.#have, bytes.length - at);
    if (size === 0) return false;
    if (this.#head === NOTHING) this.#head = new Uint8Array(FRAME_HEAD_BYTES);
    for (let index = 0; index < size; index += 1) this.#head[this.#have + index] = bytes[at + index] as number;
    this.#at = at + size;
    this.#have += size;
    if (this.#have < FRAME_HEAD_BYTES) return false;
    this.#have = 0;
    this.#parse(this.#head, 0);
    return true;
  }

  #parse(bytes: Uint8Array, at: number): void {
    this.length = ((bytes[at] as number) << 16) | ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number);
    this.type = bytes[at + 3] as number;
    this.flags = bytes[at + 4] as number;
    // The reserved bit is ignored (RFC 9113 section 4.1).
    this.stream = uint32At(bytes, at + 5) & 0x7fff_ffff;
  }

  /** Chooses the next step after a head. */
  #begin(): ReadEvent | undefined {
    const { type, length } = this;
    if (length > this.#maxFrameBytes) {
      return this.#fail(Http2Code.frameSizeError, `a frame of ${length} bytes is above ${this.#maxFrameBytes}`);
    }
    if (type === FrameType.data) {
      this.padding = 0;
      this.#left = length;
      if ((this.flags & Flag.padded) === 0) this.#step = "data";
      else if (length === 0) return this.#fail(Http2Code.frameSizeError, "a padded DATA frame has no padding length");
      else this.#step = "padding-length";
      return "data-head";
    }
    if (type === FrameType.priority || type > FrameType.continuation) {
      if (type === FrameType.priority && length !== 5) return this.#wrongSize();
      this.#left = length;
      this.#step = "skip";
      return undefined;
    }
    const wanted = FIXED_BYTES[type];
    if (wanted !== undefined && wanted !== length) return this.#wrongSize();
    if (length > MAX_WHOLE_BYTES) {
      return this.#fail(
        Http2Code.enhanceYourCalm,
        `a frame of type ${type} has ${length} bytes, more than ${MAX_WHOLE_BYTES}`,
      );
    }
    this.#step = "payload";
    return undefined;
  }

  #wrongSize(): "fault" {
    return this.#fail(Http2Code.frameSizeError, `a frame of type ${this.type} has ${this.length} bytes`);
  }

  #skip(): boolean {
    const size = Math.min(this.#left, this.#bytes.length - this.#at);
    this.#at += size;
    this.#left -= size;
    return this.#left === 0;
  }

  #readPayload(): boolean {
    const { length } = this;
    const bytes = this.#bytes;
    const at = this.#at;
    if (this.#have === 0 && bytes.length - at >= length) {
      this.payload = bytes.subarray(at, at + length);
      this.#at = at + length;
      return true;
    }
    const size = Math.min(length - this.#have, bytes.length - at);
    const end = this.#have + size;
    if (end > this.#partial.length) {
      const grown = new Uint8Array(Math.min(length, Math.max(end, 2 * this.#partial.length, FIRST_BUFFER_BYTES)));
      grown.set(this.#partial.subarray(0, this.#have));
      this.#partial = grown;
    }
    this.#partial.set(bytes.subarray(at, at + size), this.#have);
    this.#at = at + size;
    this.#have = end;
    if (end < length) return false;
    this.payload = this.#partial.subarray(0, length);
    this.#partial = NOTHING;
    this.#have = 0;
    return true;
  }
}

/** Frames with one size (RFC 9113 sections 6.4, 6.7, 6.9), by type. */
const FIXED_BYTES: readonly (number | undefined)[] = [
  undefined,
  undefined,
  undefined,
  4, // RST_STREAM
  undefined,
  undefined,
  8, // PING
  undefined,
  4, // WINDOW_UPDATE
];
