import { once } from "node:events";
import type { Socket } from "node:net";
import { decodeHeaderBlock, encodeHeaderBlock, type Header } from "#wire/http2";

/** RFC 9113 section 6. */
export const FrameType = {
  data: 0,
  headers: 1,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;
export const FrameFlag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;
export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

export interface RawFrame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** A frame's bytes. */
export function frameBytes(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** The headers of a gRPC request, pseudo headers first. */
export function grpcRequest(path: string, more: readonly Header[] = [], authority = "localhost"): Header[] {
  return [
    [":method", "POST"],
    [":scheme", "http"],
    [":path", path],
    [":authority", authority],
    ["content-type", "application/grpc"],
    ["te", "trailers"],
    ...more,
  ];
}

/** A client that writes single HTTP/2 frames, which libraries do not allow. It acknowledges SETTINGS, and optionally PINGs. */
export class RawHttp2 {
  readonly frames: RawFrame[] = [];
  readonly socket: Socket;
  readonly #pong: boolean;
  #pending = Buffer.alloc(0);
  #onFrame: () => void = () => undefined;
  isClosed = false;

  /** The socket is connected. Sends the preface and settings without compression. */
  constructor(socket: Socket, { pong = true }: { readonly pong?: boolean } = {}) {
    this.socket = socket;
    this.#pong = pong;
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
    socket.on("error", () => socket.destroy());
    socket.once("close", () => {
      this.isClosed = true;
      this.#onFrame();
    });
    socket.on("end", () => socket.end());
    // HEADER_TABLE_SIZE 0, INITIAL_WINDOW_SIZE 16 MiB; the connection's window is 16 MiB too.
    const settings = Buffer.from("000100000000000401000000", "hex");
    socket.write(Buffer.concat([PREFACE, frameBytes(FrameType.settings, 0, 0, settings)]));
    socket.write(frameBytes(FrameType.windowUpdate, 0, 0, Buffer.from("01000000", "hex")));
  }

  write(bytes: Uint8Array): void {
    this.socket.write(bytes);
  }

  /** Opens a stream. */
  request(stream: number, headers: readonly Header[], flags: number = FrameFlag.endHeaders): void {
    this.write(frameBytes(FrameType.headers, flags, stream, encodeHeaderBlock(headers)));
  }

  data(stream: number, bytes: Uint8Array, flags = 0): void {
    this.write(frameBytes(FrameType.data, flags, stream, bytes));
  }

  ping(text = "12345678"): void {
    this.write(frameBytes(FrameType.ping, 0, 0, Buffer.from(text)));
  }

  /** Frames of one type; of one stream, if given. */
  of(type: number, stream?: number): RawFrame[] {
    return this.frames.filter((frame) => frame.type === type && (stream === undefined || frame.stream === stream));
  }

  /** All headers and trailers of a stream in order. */
  headersOf(stream: number): Header[] {
    return this.of(FrameType.headers, stream).flatMap(({ payload }) => decodeHeaderBlock(payload));
  }

  header(stream: number, name: string): string | undefined {
    return this.headersOf(stream).find(([one]) => one === name)?.[1];
  }

  dataOf(stream: number): Buffer {
    return Buffer.concat(this.of(FrameType.data, stream).map(({ payload }) => payload));
  }

  /** Waits for a condition, which is checked after each read. */
  async until(what: string, condition: () => boolean, timeoutMs = 10_000): Promise<void> {
    const signal = AbortSignal.timeout(timeoutMs);
    while (!condition()) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      this.#onFrame = resolve;
      const expire = (): void => {
        const seen = this.frames.map(({ type, stream, flags }) => `${type}/${flags}@${stream}`).join(" ");
        reject(new Error(`not within ${timeoutMs} ms: ${what}; frames ${seen}${this.isClosed ? ", closed" : ""}`));
      };
      signal.addEventListener("abort", expire, { once: true });
      await promise.finally(() => signal.removeEventListener("abort", expire));
    }
  }

  /** The stream's status. */
  async status(stream: number): Promise<number> {
    await this.until(`stream ${stream} has a status`, () => this.header(stream, "grpc-status") !== undefined);
    return Number(this.header(stream, "grpc-status"));
  }

  async closed(): Promise<void> {
    if (!this.isClosed) await once(this.socket, "close");
  }

  #take(chunk: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, chunk]);
    while (this.#pending.length >= 9) {
      const end = 9 + this.#pending.readUIntBE(0, 3);
      if (this.#pending.length < end) break;
      const frame: RawFrame = {
        type: this.#pending.readUInt8(3),
        flags: this.#pending.readUInt8(4),
        stream: this.#pending.readUInt32BE(5),
        payload: this.#pending.subarray(9, end),
      };
      this.#pending = this.#pending.subarray(end);
      this.frames.push(frame);
      if ((frame.flags & FrameFlag.ack) !== 0) continue;
      if (frame.type === FrameType.settings) this.write(frameBytes(FrameType.settings, FrameFlag.ack, 0));
      if (frame.type === FrameType.ping && this.#pong) {
        this.write(frameBytes(FrameType.ping, FrameFlag.ack, 0, frame.payload));
      }
    }
    this.#onFrame();
  }
}
