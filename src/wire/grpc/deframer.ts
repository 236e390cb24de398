import { GrpcWireError } from "./errors.ts";

/** The bytes of a message in order, as views of the received chunks. */
export type MessagePieces = readonly Uint8Array[];

/** If a message has more views than this, each shorter than the given size, they are copied into one view. */
const MAX_PIECES = 64;
const CRUMB_BYTES = 1024;

/**
 * Cuts a stream of HTTP/2 DATA into gRPC messages without copying: a message that arrives in several chunks is passed on
 * as several views. Holds at most one message (`maxBytes`) at a time.
 */
export class GrpcDeframer {
  readonly #maxBytes: number;
  readonly #onMessage: (pieces: MessagePieces, length: number) => void;
  /** Bytes of the prefix that were read. */
  #prefixBytes = 0;
  #isCompressed = false;
  #length = 0;
  #missing = 0;
  #pieces: Uint8Array[] = [];
  /** The buffer of a message that comes in tiny pieces: views of them would take more memory than the bytes. */
  #whole: Uint8Array | undefined;

  /** `onMessage` is called within {@link push}; the views stay valid as long as the chunks do. */
  constructor(options: {
    /** A longer message is an error. */
    readonly maxBytes: number;
    readonly onMessage: (pieces: MessagePieces, length: number) => void;
  }) {
    this.#maxBytes = options.maxBytes;
    this.#onMessage = options.onMessage;
  }

  /** Bytes that the incomplete message occupies in memory. */
  get heldBytes(): number {
    if (this.#prefixBytes < 5) return 0;
    return this.#whole === undefined ? this.#length - this.#missing : this.#length;
  }

  /** True between messages: a stream may end here. */
  get isIdle(): boolean {
    return this.#prefixBytes === 0;
  }

  /** Throws {@link GrpcWireError} `compressed` or `too-large`; the stream must be ended then. */
  push(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length || (this.#prefixBytes === 5 && this.#missing === 0)) {
      if (this.#prefixBytes < 5) {
        this.#readPrefix(chunk[at] as number);
        at += 1;
        continue;
      }
      if (this.#missing > 0) {
        const taken = Math.min(this.#missing, chunk.length - at);
        this.#hold(at === 0 && taken === chunk.length ? chunk : chunk.subarray(at, at + taken));
        this.#missing -= taken;
        at += taken;
      }
      if (this.#missing === 0) this.#end();
    }
  }

  #hold(piece: Uint8Array): void {
    const received = this.#length - this.#missing;
    if (this.#whole !== undefined) {
      this.#whole.set(piece, received);
      return;
    }
    this.#pieces.push(piece);
    if (this.#pieces.length <= MAX_PIECES || received > this.#pieces.length * CRUMB_BYTES) return;
    const whole = new Uint8Array(this.#length);
    let at = 0;
    for (const one of this.#pieces) {
      whole.set(one, at);
      at += one.length;
    }
    this.#whole = whole;
    this.#pieces = [whole];
  }

  /** Reads a byte of the prefix: the flag, then the length. */
  #readPrefix(byte: number): void {
    if (this.#prefixBytes === 0) {
      this.#isCompressed = byte !== 0;
      this.#length = 0;
    } else this.#length = this.#length * 256 + byte;
    this.#prefixBytes += 1;
    if (this.#prefixBytes === 5) this.#begin();
  }

  #begin(): void {
    if (this.#isCompressed)
      throw new GrpcWireError("compressed", "a gRPC message is compressed, which was not negotiated");
    if (this.#length > this.#maxBytes) {
      throw new GrpcWireError("too-large", `a gRPC message of ${this.#length} bytes exceeds ${this.#maxBytes}`);
    }
    this.#missing = this.#length;
  }

  #end(): void {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#whole = undefined;
    this.#prefixBytes = 0;
    this.#onMessage(pieces, this.#length);
  }
}
