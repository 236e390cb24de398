import { encodeHeaderBlock, type Header, HpackDecoder, Http2Error } from "#wire/http2";

/** The first bytes of every HTTP/2 client (RFC 9113 section 3.4). */
export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
export const FRAME_HEAD_BYTES = 9;
export const FrameType = { headers: 1, settings: 4, ping: 6, continuation: 9 } as const;
export const Flag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;
/** Limit of a request's header block, compressed and decoded. */
const MAX_BLOCK_BYTES = 64 * 1024;
/** SETTINGS_HEADER_TABLE_SIZE of the servers: HTTP/2's default. */
const HEADER_TABLE_BYTES = 4096;
/** The frame size that every peer must accept (RFC 9113 section 4.2). */
const MAX_FRAME_BYTES = 16_384;
/** The characters that nghttp2 accepts in an authority. A socket's path, which older Go clients send, has other characters. */
const AUTHORITY = /^[A-Za-z0-9\-._~%!$&'()*+,;=:@[\]]*$/;
const REPLACEMENT = "localhost";

/** A frame's bytes. */
export function frameBytes(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** Joins and decodes the header blocks of a connection's requests, in order. */
export class HeaderBlocks {
  readonly #decoder = new HpackDecoder({ maxTableBytes: HEADER_TABLE_BYTES, maxListBytes: MAX_BLOCK_BYTES });
  #parts: Buffer[] = [];
  #bytes = 0;
  #open: { readonly stream: number; readonly flags: number } | undefined;

  /** True if a block has begun and not ended: only its CONTINUATION frames may follow. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** Takes a HEADERS or CONTINUATION frame. Returns the block at its last frame. Throws {@link Http2Error}. */
  take(
    type: number,
    flags: number,
    stream: number,
    payload: Buffer,
  ): { readonly stream: number; readonly endStream: boolean; readonly headers: Header[] } | undefined {
    if (type === FrameType.headers) {
      this.#open = { stream, flags };
      this.#add(fragmentOf(flags, payload));
    } else {
      if (stream !== this.#open?.stream)
        throw new Http2Error("malformed", "a CONTINUATION frame follows no HEADERS frame of its stream");
      this.#add(payload);
    }
    if ((flags & Flag.endHeaders) === 0) return undefined;
    const headers = this.#decoder.decode(Buffer.concat(this.#parts));
    const endStream = (this.#open.flags & Flag.endStream) !== 0;
    this.#parts = [];
    this.#bytes = 0;
    this.#open = undefined;
    return { stream, endStream, headers };
  }

  #add(part: Buffer): void {
    this.#bytes += part.length;
    // Empty frames are limited too, because they would make the list grow.
    if (this.#bytes > MAX_BLOCK_BYTES || this.#parts.length > 64) {
      throw new Http2Error("too-large", `a header block has more than ${MAX_BLOCK_BYTES} bytes or 64 frames`);
    }
    this.#parts.push(part);
  }
}

/** The payload of a HEADERS frame without padding and priority. */
function fragmentOf(flags: number, payload: Buffer): Buffer {
  const padded = (flags & Flag.padded) !== 0;
  const padding = padded ? (payload[0] ?? 0) : 0;
  const start = (padded ? 1 : 0) + ((flags & Flag.priority) === 0 ? 0 : 5);
  if (start + padding > payload.length)
    throw new Http2Error("malformed", "the padding of a HEADERS frame is longer than the frame");
  return payload.subarray(start, payload.length - padding);
}

/** Whether Node.js's HTTP/2 would refuse a request with these headers. */
export function isRefused(headers: readonly Header[]): boolean {
  return headers.some(([name, value]) => name === ":authority" && !AUTHORITY.test(value));
}

/**
 * Rewrites the bytes of a client: replaces authorities that Node.js's HTTP/2 would refuse. Header blocks are decoded and written
 * without compression; everything else passes unchanged. Holds at most one header block.
 */
export class AuthorityRewriter {
  readonly #blocks = new HeaderBlocks();
  #pending: Buffer = Buffer.alloc(0);
  /** Bytes that pass unchanged before the next frame begins. */
  #passing = PREFACE.length;

  /** Throws {@link Http2Error}; the connection must be closed then. */
  push(chunk: Buffer): Buffer[] {
    const out: Buffer[] = [];
    let rest = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (rest.length > 0) {
      if (this.#passing > 0) {
        const passed = rest.subarray(0, this.#passing);
        out.push(passed);
        this.#passing -= passed.length;
        rest = rest.subarray(passed.length);
        continue;
      }
      const used = this.#frame(rest, out);
      if (used === 0) break;
      rest = rest.subarray(used);
    }
    this.#pending = rest;
    return out;
  }

  /** Takes a frame from the start of `bytes` and returns its length; 0 if more bytes are needed. */
  #frame(bytes: Buffer, out: Buffer[]): number {
    if (bytes.length < FRAME_HEAD_BYTES) return 0;
    const length = bytes.readUIntBE(0, 3);
    const type = bytes.readUInt8(3);
    const end = FRAME_HEAD_BYTES + length;
    if (type !== FrameType.headers && type !== FrameType.continuation) {
      if (this.#blocks.isOpen) throw new Http2Error("malformed", "another frame interrupts a header block");
      this.#passing = end - FRAME_HEAD_BYTES;
      out.push(bytes.subarray(0, FRAME_HEAD_BYTES));
      return FRAME_HEAD_BYTES;
    }
    if (length > MAX_BLOCK_BYTES)
      throw new Http2Error("too-large", `a HEADERS or CONTINUATION frame has ${length} bytes, which is too long`);
    if (bytes.length < end) return 0;
    const payload = bytes.subarray(FRAME_HEAD_BYTES, end);
    const block = this.#blocks.take(type, bytes.readUInt8(4), bytes.readUInt32BE(5) & 0x7fff_ffff, payload);
    if (block !== undefined) out.push(...rewritten(block));
    return end;
  }
}

function rewritten(block: {
  readonly stream: number;
  readonly endStream: boolean;
  readonly headers: readonly Header[];
}): Buffer[] {
  const headers = block.headers.map(
    ([name, value]): Header => [name, name === ":authority" && !AUTHORITY.test(value) ? REPLACEMENT : value],
  );
  const bytes = encodeHeaderBlock(headers, (text) => Buffer.from(text, "latin1"));
  const frames: Buffer[] = [];
  for (let at = 0; at === 0 || at < bytes.length; at += MAX_FRAME_BYTES) {
    const isLast = at + MAX_FRAME_BYTES >= bytes.length;
    const flags = (isLast ? Flag.endHeaders : 0) | (at === 0 && block.endStream ? Flag.endStream : 0);
    const type = at === 0 ? FrameType.headers : FrameType.continuation;
    frames.push(frameBytes(type, flags, block.stream, bytes.subarray(at, at + MAX_FRAME_BYTES)));
  }
  return frames;
}
