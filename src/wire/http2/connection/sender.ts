import type { Header } from "../hpack.ts";
import { HpackEncoder } from "../hpack-encoder.ts";
import {
  DEFAULT_WINDOW_BYTES,
  Flag,
  FRAME_HEAD_BYTES,
  FrameType,
  MAX_WINDOW_BYTES,
  MIN_MAX_FRAME_BYTES,
} from "./frames.ts";
import { type BlockWriter, Output, putHead } from "./output.ts";
import type { Stream } from "./stream.ts";

/** A batch is exceeded by at most this, so that its end does not cut a frame into crumbs, in bytes. */
const MIN_CUT_BYTES = 1024;

/**
 * The frames that are sent. Everything but DATA, and trailers that wait behind it, is written into the output at once; DATA is cut when it is
 * taken, one frame of each stream in turn, as the windows allow.
 */
export class Sender implements BlockWriter {
  readonly output = new Output();
  /** The peer's SETTINGS_INITIAL_WINDOW_SIZE. */
  initialWindow = DEFAULT_WINDOW_BYTES;
  /** Bytes of data that wait in all streams. */
  queuedBytes = 0;
  /** Streams that have sent since the last call of {@link take}. The connection empties it. */
  readonly touched: Stream[] = [];

  readonly #encoder = new HpackEncoder();
  readonly #ownMaxFrameBytes: number;
  #maxFrameBytes = MIN_MAX_FRAME_BYTES;
  #window = DEFAULT_WINDOW_BYTES;
  /** Streams that have data and a window: a list in the order of their turns. */
  #first: Stream | undefined;
  #last: Stream | undefined;
  /** The block that {@link write} writes. */
  #block: { readonly headers: readonly Header[]; readonly stream: number; readonly flags: number } | undefined;

  /** `maxFrameBytes`: limit of a DATA frame, which is a stream's turn. */
  constructor(maxFrameBytes: number) {
    this.#ownMaxFrameBytes = maxFrameBytes;
  }

  /** True if {@link take} returns bytes. */
  get hasOutput(): boolean {
    return this.output.length > 0 || (this.#first !== undefined && this.#window > 0);
  }

  /** HEADERS, and CONTINUATION if the block is larger than a frame. */
  headers(stream: Stream, headers: readonly Header[], endStream: boolean): void {
    const maxBytes = this.#encoder.maxBlockBytes(headers);
    const flags = endStream ? Flag.endStream : 0;
    if (maxBytes > this.#maxFrameBytes) this.#longHeaders(stream.id, headers, flags, maxBytes);
    else {
      this.#block = { headers, stream: stream.id, flags };
      this.output.block(FRAME_HEAD_BYTES + maxBytes, this);
    }
    if (endStream) stream.hasSentEnd = true;
  }

  write(slab: Uint8Array, at: number): number {
    const block = this.#block;
    this.#block = undefined;
    if (block === undefined) throw new Error("no header block is to be written");
    const end = this.#encoder.encode(block.headers, slab, at + FRAME_HEAD_BYTES);
    const flags = block.flags | Flag.endHeaders;
    putHead(slab, at, end - at - FRAME_HEAD_BYTES, FrameType.headers, flags, block.stream);
    return end;
  }

  #longHeaders(stream: number, headers: readonly Header[], flags: number, maxBytes: number): void {
    const bytes = new Uint8Array(maxBytes);
    const length = this.#encoder.encode(headers, bytes, 0);
    for (let at = 0; at === 0 || at < length; at += this.#maxFrameBytes) {
      const end = Math.min(length, at + this.#maxFrameBytes);
      const type = at === 0 ? FrameType.headers : FrameType.continuation;
      const own = (at === 0 ? flags : 0) | (end === length ? Flag.endHeaders : 0);
      this.output.head(end - at, type, own, stream);
      this.output.copy(bytes.subarray(at, end));
    }
  }

  /** Queues data. A stream that waits to be opened has no window yet. */
  data(stream: Stream, chunks: readonly Uint8Array[]): void {
    const before = stream.queue.length;
    for (const chunk of chunks) stream.queue.push(chunk);
    this.queuedBytes += stream.queue.length - before;
    this.#makeReady(stream);
  }

  /** Ends the side of a stream without data that waits. */
  end(stream: Stream): void {
    this.output.head(0, FrameType.data, Flag.endStream, stream.id);
    stream.hasSentEnd = true;
  }

  /** A stream that waited has its id now. */
  opened(stream: Stream): void {
    this.#makeReady(stream);
  }

  /** Drops what waits of a stream. */
  drop(stream: Stream): void {
    this.queuedBytes -= stream.queue.length;
    stream.queue.clear();
    stream.trailers = undefined;
    this.#remove(stream);
  }

  settings(values: readonly (readonly [id: number, value: number])[]): void {
    this.output.head(6 * values.length, FrameType.settings, 0, 0);
    for (const [id, value] of values) {
      this.output.uint16(id);
      this.output.uint32(value);
    }
  }

  settingsAck(): void {
    this.output.head(0, FrameType.settings, Flag.ack, 0);
  }

  /** `opaque` has eight bytes. */
  ping(opaque: Uint8Array, isAck: boolean): void {
    this.output.head(8, FrameType.ping, isAck ? Flag.ack : 0, 0);
    this.output.copy(opaque);
  }

  reset(stream: number, code: number): void {
    this.output.head(4, FrameType.rstStream, 0, stream);
    this.output.uint32(code);
  }

  windowUpdate(stream: number, bytes: number): void {
    this.output.head(4, FrameType.windowUpdate, 0, stream);
    this.output.uint32(bytes);
  }

  goAway(lastStream: number, code: number, text: string): void {
    this.output.head(8 + text.length, FrameType.goAway, 0, 0);
    this.output.uint32(lastStream);
    this.output.uint32(code);
    this.output.copy(Uint8Array.from(text, (char) => char.charCodeAt(0)));
  }

  /** The peer's SETTINGS_HEADER_TABLE_SIZE. */
  setHeaderTable(bytes: number): void {
    this.#encoder.setMaxTableBytes(bytes);
  }

  /** The peer's SETTINGS_MAX_FRAME_SIZE. */
  setMaxFrame(bytes: number): void {
    this.#maxFrameBytes = Math.min(bytes, this.#ownMaxFrameBytes);
  }

  /** Returns false if the window would be above the largest (RFC 9113 section 6.9.1). */
  widen(bytes: number): boolean {
    if (this.#window + bytes > MAX_WINDOW_BYTES) return false;
    this.#window += bytes;
    return true;
  }

  /** As {@link widen}. `bytes` is negative if the initial window has shrunk; the window may then be negative (section 6.9.2). */
  widenStream(stream: Stream, bytes: number): boolean {
    if (stream.sendWindow + bytes > MAX_WINDOW_BYTES) return false;
    stream.sendWindow += bytes;
    if (stream.sendWindow > 0) this.#makeReady(stream);
    else this.#remove(stream);
    return true;
  }

  /** Everything that waits and may be sent, up to `maxBytes` and at most {@link MIN_CUT_BYTES} more. Frames other than DATA do not wait. */
  take(maxBytes: number): Uint8Array[] {
    const { output } = this;
    while (output.length < maxBytes && this.#window > 0) {
      const stream = this.#first;
      if (stream === undefined) break;
      this.#sendFrame(stream, Math.max(maxBytes - output.length - FRAME_HEAD_BYTES, MIN_CUT_BYTES));
    }
    return output.take();
  }

  /** One DATA frame of the stream whose turn it is, at most `room` bytes of data. */
  #sendFrame(stream: Stream, room: number): void {
    const { queue } = stream;
    const waiting = queue.length;
    const size = Math.min(waiting, stream.sendWindow, this.#window, this.#maxFrameBytes, room);
    const isLast = size === waiting;
    const isEnd = isLast && stream.hasEnded && stream.trailers === undefined;
    this.output.head(size, FrameType.data, isEnd ? Flag.endStream : 0, stream.id);
    for (let left = size; left > 0; ) {
      const part = queue.next(left);
      this.output.view(part);
      left -= part.length;
    }
    this.#window -= size;
    this.queuedBytes -= size;
    stream.sendWindow -= size;
    stream.sentBytes += size;
    if (stream.justSent === 0) this.touched.push(stream);
    stream.justSent += size;
    if (isEnd) stream.hasSentEnd = true;
    if (isLast || stream.sendWindow <= 0) this.#remove(stream);
    else if (stream !== this.#last) {
      this.#remove(stream);
      this.#makeReady(stream);
    }
    if (isLast && stream.trailers !== undefined) {
      const { trailers } = stream;
      stream.trailers = undefined;
      this.headers(stream, trailers, true);
    }
  }

  #makeReady(stream: Stream): void {
    if (stream.isReady || stream.sendWindow <= 0 || stream.queue.length === 0) return;
    stream.isReady = true;
    stream.previous = this.#last;
    if (this.#last === undefined) this.#first = stream;
    else this.#last.next = stream;
    this.#last = stream;
  }

  #remove(stream: Stream): void {
    if (!stream.isReady) return;
    const { previous, next } = stream;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    stream.previous = undefined;
    stream.next = undefined;
    stream.isReady = false;
  }
}
