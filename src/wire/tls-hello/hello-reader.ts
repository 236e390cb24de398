import { type ClientHello, parseClientHello } from "./client-hello.ts";

/** The result after the bytes received so far. */
export type HelloProgress =
  | { readonly kind: "need-more" }
  | { readonly kind: "hello"; readonly hello: ClientHello }
  /** No TLS, or a malformed ClientHello. `reason` contains no bytes of the client. */
  | { readonly kind: "not-tls"; readonly reason: string }
  | { readonly kind: "too-large" };

/** Limit of the ClientHello with its record headers, bytes (docs/spec/tunnel.md#9.7). */
export const MAX_HELLO_BYTES = 16_384;

/** RFC 8446 section 5.1. */
const RECORD_HANDSHAKE = 22;
const RECORD_HEADER_BYTES = 5;
const MAX_RECORD_BYTES = 16_384;
/** RFC 8446 section 4. */
const MESSAGE_CLIENT_HELLO = 1;
const MESSAGE_HEADER_BYTES = 4;

const NEED_MORE: HelloProgress = { kind: "need-more" };

/**
 * Reads the ClientHello at the start of a TLS connection, however it was cut into records and chunks, and no byte after it. The result
 * comes with the first byte that decides it, and does not depend on the cuts. Holds at most `maxBytes`, and none of the caller's chunks:
 * a caller that forwards the bytes must keep them.
 */
export class ClientHelloReader {
  readonly #maxBytes: number;
  readonly #header = new Uint8Array(RECORD_HEADER_BYTES);
  #headerBytes = 0;
  /** The remaining bytes of the current record. */
  #missing = 0;
  #seen = 0;
  #message = new Uint8Array(1024);
  #messageBytes = 0;
  #isDone = false;

  constructor(options: { readonly maxBytes?: number } = {}) {
    this.#maxBytes = options.maxBytes ?? MAX_HELLO_BYTES;
  }

  /** Takes the next bytes. Throws an `Error` (a bug) after a final result. */
  push(chunk: Uint8Array): HelloProgress {
    if (this.#isDone) throw new Error("ClientHelloReader: push after the verdict");
    const progress = this.#read(chunk);
    this.#isDone = progress.kind !== "need-more";
    return progress;
  }

  #read(chunk: Uint8Array): HelloProgress {
    for (let at = 0; at < chunk.length; ) {
      const wanted = this.#missing > 0 ? this.#wantedOfMessage() : 1;
      const taken = Math.min(wanted, chunk.length - at, this.#maxBytes - this.#seen);
      const piece = chunk.subarray(at, at + taken);
      at += taken;
      this.#seen += taken;
      const progress = this.#missing > 0 ? this.#takeMessage(piece) : this.#takeHeaderByte(piece[0] ?? 0);
      if (progress.kind !== "need-more") return progress;
      if (this.#seen >= this.#maxBytes) return { kind: "too-large" };
    }
    return NEED_MORE;
  }

  /** Checks each byte at once: a client of another protocol may wait for an answer after its first bytes. */
  #takeHeaderByte(byte: number): HelloProgress {
    this.#header[this.#headerBytes] = byte;
    this.#headerBytes += 1;
    if (this.#headerBytes === 1 && byte !== RECORD_HANDSHAKE)
      return notTls("the first byte does not begin a TLS handshake");
    if (this.#headerBytes === 2 && byte !== 3) return notTls("the record has an unknown TLS version");
    if (this.#headerBytes < RECORD_HEADER_BYTES) return NEED_MORE;
    this.#missing = new DataView(this.#header.buffer).getUint16(3);
    this.#headerBytes = 0;
    if (this.#missing === 0) return notTls("a record is empty");
    if (this.#missing > MAX_RECORD_BYTES) return notTls("a record is longer than TLS allows");
    return NEED_MORE;
  }

  /** The bytes up to the end of the record, or of the message's header or body. */
  #wantedOfMessage(): number {
    return Math.min(this.#missing, this.#messageLength() - this.#messageBytes);
  }

  /** The length of the message with its header; the header's own length until the header is complete. */
  #messageLength(): number {
    if (this.#messageBytes < MESSAGE_HEADER_BYTES) return MESSAGE_HEADER_BYTES;
    return MESSAGE_HEADER_BYTES + (new DataView(this.#message.buffer).getUint32(0) & 0xff_ffff);
  }

  #takeMessage(piece: Uint8Array): HelloProgress {
    this.#missing -= piece.length;
    this.#hold(piece);
    if (this.#message[0] !== MESSAGE_CLIENT_HELLO) return notTls("the first message is not a ClientHello");
    if (this.#messageBytes < MESSAGE_HEADER_BYTES) return NEED_MORE;
    const length = this.#messageLength();
    if (length + RECORD_HEADER_BYTES > this.#maxBytes) return { kind: "too-large" };
    // A message of length 0 ends with its header; parseClientHello refuses it.
    if (this.#messageBytes < length) return NEED_MORE;
    const hello = parseClientHello(this.#message.subarray(MESSAGE_HEADER_BYTES, length));
    return typeof hello === "string" ? notTls(hello) : { kind: "hello", hello };
  }

  #hold(piece: Uint8Array): void {
    const length = this.#messageBytes + piece.length;
    if (length > this.#message.length) {
      const grown = new Uint8Array(Math.max(length, this.#message.length * 2));
      grown.set(this.#message);
      this.#message = grown;
    }
    this.#message.set(piece, this.#messageBytes);
    this.#messageBytes = length;
  }
}

function notTls(reason: string): HelloProgress {
  return { kind: "not-tls", reason };
}
