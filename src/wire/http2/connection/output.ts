import { FRAME_HEAD_BYTES, NOTHING } from "./frames.ts";

/** Sizes of the slabs, in bytes. The first is small: an idle connection keeps one. */
const FIRST_SLAB_BYTES = 256;
const MAX_SLAB_BYTES = 8192;
/** Payload of at most this size is copied behind its head: a view and an entry of writev would cost more. */
const MAX_COPIED_BYTES = 512;

/**
 * The bytes to write, in order. Heads and small frames are written one behind the other into a slab; payload stays the caller's views. No byte
 * of a slab is written twice, so what was taken stays as it is.
 */
export class Output {
  #views: Uint8Array[] = [];
  #slab: Uint8Array = NOTHING;
  /** The bytes of the slab that are in no view. */
  #start = 0;
  #at = 0;
  #length = 0;

  /** Bytes that wait. */
  get length(): number {
    return this.#length;
  }

  /** The head of a frame (RFC 9113 section 4.1). */
  head(length: number, type: number, flags: number, stream: number): void {
    const at = this.#reserve(FRAME_HEAD_BYTES);
    putHead(this.#slab, at, length, type, flags, stream);
  }

  uint32(value: number): void {
    const at = this.#reserve(4);
    putUint32(this.#slab, at, value);
  }

  uint16(value: number): void {
    const at = this.#reserve(2);
    this.#slab[at] = value >>> 8;
    this.#slab[at + 1] = value;
  }

  /** Bytes that are copied. */
  copy(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.length);
    this.#slab.set(bytes, at);
  }

  /** Bytes that must not change until they are written. Few bytes are copied. */
  view(bytes: Uint8Array): void {
    if (bytes.length <= MAX_COPIED_BYTES) {
      this.copy(bytes);
      return;
    }
    this.#close();
    this.#views.push(bytes);
    this.#length += bytes.length;
  }

  /** Room for at most `maxBytes` of a block: `write` fills the slab from `at` on and returns the end of what it has written. */
  block(maxBytes: number, writer: BlockWriter): void {
    const at = this.#reserve(maxBytes);
    const end = writer.write(this.#slab, at);
    this.#length -= at + maxBytes - end;
    this.#at = end;
  }

  /** Everything that waits. The output is empty then. */
  take(): Uint8Array[] {
    this.#close();
    const views = this.#views;
    this.#views = [];
    this.#length = 0;
    return views;
  }

  #reserve(bytes: number): number {
    if (this.#slab.length - this.#at < bytes) {
      this.#close();
      const size = Math.min(MAX_SLAB_BYTES, Math.max(FIRST_SLAB_BYTES, 2 * this.#slab.length));
      this.#slab = new Uint8Array(Math.max(size, bytes));
      this.#start = 0;
      this.#at = 0;
    }
    const at = this.#at;
    this.#at = at + bytes;
    this.#length += bytes;
    return at;
  }

  /** Ends the present run of bytes of the slab. */
  #close(): void {
    if (this.#at === this.#start) return;
    this.#views.push(this.#slab.subarray(this.#start, this.#at));
    this.#start = this.#at;
  }
}

/** Writes a block into a slab. */
export interface BlockWriter {
  /** Returns the end of what it has written from `at` on. */
  write(slab: Uint8Array, at: number): number;
}

export function putUint32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

/** The head of a frame (RFC 9113 section 4.1), {@link FRAME_HEAD_BYTES} long. */
export function putHead(
  bytes: Uint8Array,
  at: number,
  length: number,
  type: number,
  flags: number,
  stream: number,
): void {
  bytes[at] = length >>> 16;
  bytes[at + 1] = length >>> 8;
  bytes[at + 2] = length;
  bytes[at + 3] = type;
  bytes[at + 4] = flags;
  putUint32(bytes, at + 5, stream);
}
