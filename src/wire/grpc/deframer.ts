import { GrpcWireError } from "./errors.ts";

/** A message as it lay in what was read: its bytes in order, as views. */
export type MessagePieces = readonly Uint8Array[];

/**
 * Cuts a stream of HTTP/2 DATA into gRPC messages without copying: a message that arrives in several chunks is handed on
 * as several views. Holds at most one message (`maxBytes`) at a time.
 */
export class GrpcDeframer {
  readonly #maxBytes: number;
  readonly #onMessage: (pieces: MessagePieces, length: number) => void;
  readonly #prefix = new Uint8Array(5);
  #prefixBytes = 0;
  #length = 0;
  #missing = 0;
  #pieces: Uint8Array[] = [];

  /** `onMessage` is called within {@link push}; the views stay valid as long as the chunks do. */
  constructor(options: {
    /** A longer message is an error. */
    readonly maxBytes: number;
    readonly onMessage: (pieces: MessagePieces, length: number) => void;
  }) {
    this.#maxBytes = options.maxBytes;
    this.#onMessage = options.onMessage;
  }

  /** True between messages: a stream may end here. */
  get isIdle(): boolean {
    return this.#prefixBytes === 0;
  }

  /** Throws {@link GrpcWireError} `compressed` or `too-large`; the stream is of no use after that. */
  push(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length || (this.#prefixBytes === 5 && this.#missing === 0)) {
      if (this.#prefixBytes < 5) {
        const taken = Math.min(5 - this.#prefixBytes, chunk.length - at);
        this.#prefix.set(chunk.subarray(at, at + taken), this.#prefixBytes);
        this.#prefixBytes += taken;
        at += taken;
        if (this.#prefixBytes === 5) this.#begin();
        continue;
      }
      if (this.#missing > 0) {
        const taken = Math.min(this.#missing, chunk.length - at);
        this.#pieces.push(at === 0 && taken === chunk.length ? chunk : chunk.subarray(at, at + taken));
        this.#missing -= taken;
        at += taken;
      }
      if (this.#missing === 0) this.#end();
    }
  }

  #begin(): void {
    const [flag = 0] = this.#prefix;
    if (flag !== 0) throw new GrpcWireError("compressed", "a gRPC message is compressed, which was not negotiated");
    this.#length = new DataView(this.#prefix.buffer).getUint32(1);
    if (this.#length > this.#maxBytes) {
      throw new GrpcWireError("too-large", `a gRPC message of ${this.#length} bytes exceeds ${this.#maxBytes}`);
    }
    this.#missing = this.#length;
  }

  #end(): void {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#prefixBytes = 0;
    this.#onMessage(pieces, this.#length);
  }
}
