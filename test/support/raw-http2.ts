import { once } from "node:events";
import type { Socket } from "node:net";
import { Flag, FRAME_HEAD_BYTES, FrameType, Setting } from "../../src/wire/http2/connection/frames.ts";
import {
  firstFrame,
  frame,
  headers,
  PREFACE_BYTES,
  type RawFrame,
  settings,
  uint32,
  windowUpdate,
} from "../../src/wire/http2/connection/testing/frames.ts";
import { decodeHeaderBlock, encodeHeaderBlock, type Header } from "../../src/wire/http2/index.ts";

export { Flag, FrameType, frame, headers, PREFACE_BYTES, settings, uint32 };

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

/** The windows of streams and of the connection, in bytes. */
const WINDOW_BYTES = 16 * 1024 * 1024;

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
    const own = settings([Setting.headerTableSize, 0], [Setting.initialWindowSize, WINDOW_BYTES]);
    socket.write(Buffer.concat([PREFACE_BYTES, own, windowUpdate(0, WINDOW_BYTES)]));
  }

  write(bytes: Uint8Array): void {
    this.socket.write(bytes);
  }

  /** Opens a stream. */
  request(stream: number, list: readonly Header[], flags: number = Flag.endHeaders): void {
    this.write(frame(FrameType.headers, flags, stream, encodeHeaderBlock(list)));
  }

  data(stream: number, bytes: Uint8Array, flags = 0): void {
    this.write(frame(FrameType.data, flags, stream, bytes));
  }

  ping(text = "12345678"): void {
    this.write(frame(FrameType.ping, 0, 0, Buffer.from(text)));
  }

  /** Frames of one type; of one stream, if given. */
  of(type: number, stream?: number): RawFrame[] {
    return this.frames.filter((one) => one.type === type && (stream === undefined || one.stream === stream));
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
    for (let one = firstFrame(this.#pending); one !== undefined; one = firstFrame(this.#pending)) {
      this.#pending = this.#pending.subarray(FRAME_HEAD_BYTES + one.payload.length);
      this.frames.push(one);
      if ((one.flags & Flag.ack) !== 0) continue;
      if (one.type === FrameType.settings) this.write(frame(FrameType.settings, Flag.ack, 0));
      if (one.type === FrameType.ping && this.#pong) this.write(frame(FrameType.ping, Flag.ack, 0, one.payload));
    }
    this.#onFrame();
  }
}
