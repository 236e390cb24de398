import { once } from "node:events";
import { type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Socket } from "node:net";
import { TUNNEL_METHODS } from "#wire/konnectivity";
import type { Call, CallEvents, StreamEnd } from "../http2/session.ts";
import { DEFAULT_SETTINGS, MAX_FRAME_BYTES, SESSION_WINDOW_BYTES } from "../http2/windows.ts";

/** A call of `ProxyService/Proxy` on Node's own HTTP/2, which does not read while one of its writes waits for the kernel. */
export class BusyCall implements Call {
  readonly #stream: ClientHttp2Stream;

  private constructor(stream: ClientHttp2Stream) {
    this.#stream = stream;
    // The close event follows. An error without a listener would end the process.
    stream.on("error", () => undefined);
  }

  /** Does not wait for the server's headers. The session has no other stream, and ends with it. */
  static async open(socket: Socket): Promise<BusyCall> {
    const session = connect("http://localhost", {
      createConnection: () => socket,
      settings: {
        initialWindowSize: DEFAULT_SETTINGS.streamWindowBytes,
        maxFrameSize: MAX_FRAME_BYTES,
        enablePush: false,
      },
    });
    session.on("error", () => undefined);
    await once(session, "connect");
    session.setLocalWindowSize(SESSION_WINDOW_BYTES);
    const head = {
      ":method": "POST",
      ":path": TUNNEL_METHODS.proxy,
      "content-type": "application/grpc",
      te: "trailers",
    };
    const call = new BusyCall(session.request(head, { endStream: false }));
    call.whenGone(() => session.destroy());
    return call;
  }

  get isGone(): boolean {
    return this.#stream.destroyed || this.#stream.closed;
  }

  start(events: CallEvents): void {
    this.#stream.on("data", (chunk: Uint8Array) => events.onData(chunk));
    this.#stream.once("end", () => events.onEnd());
    this.whenGone((end) => events.onClosed(end));
  }

  send(pieces: readonly Uint8Array[], _bytes: number, onTaken: () => void): boolean {
    const stream = this.#stream;
    if (!stream.writable) return false;
    stream.cork();
    for (const [at, piece] of pieces.entries()) {
      stream.write(piece, (error) => {
        if (at === pieces.length - 1 && !error) onTaken();
      });
    }
    stream.uncork();
    return true;
  }

  end(): void {
    this.#stream.end();
  }

  reset(): void {
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  whenGone(callback: (end: StreamEnd) => void): void {
    this.#stream.once("close", () => callback({ kind: this.#stream.rstCode === 0 ? "done" : "reset" }));
  }
}
