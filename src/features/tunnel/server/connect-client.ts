import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { UnixStream } from "#kernel/reactor";
import { sendQueueBytes } from "#kernel/socket";
import { descriptorOf } from "../http2/descriptor.ts";
import type { WatchedSide } from "../local/local-side.ts";
import type { ReplyReader } from "../local/reply-gate.ts";
import { SocketSide } from "../local/socket-side.ts";
import { StreamSide } from "../local/stream-side.ts";

/** The common part of a socket of Node and a stream of kernel/reactor. */
export interface Wire {
  on(event: "data", listener: (chunk: Uint8Array) => void): unknown;
  once(event: "end" | "close", listener: () => void): unknown;
  off(event: "data", listener: (chunk: Uint8Array) => void): unknown;
  off(event: "end" | "close", listener: () => void): unknown;
  pause(): unknown;
  resume(): unknown;
  end(chunk: Uint8Array): unknown;
  destroy(): unknown;
}

/** The connection of a client of HTTP CONNECT, which can end its sending and still receive. */
export interface ConnectClient extends ReplyReader {
  /** For the request, and for the reply that refuses it. The bytes of a `data` event are valid during the event only. */
  readonly wire: Wire;
  /** The connection as local side, from the request on. Called at most once. */
  side(options: { readonly closeLingerMs: number | undefined }): WatchedSide;
  /** Writes the reply. `onWritten` is called once later writes are not joined with it in this process. */
  reply(bytes: Uint8Array, onWritten: () => void): void;
}

/** A TLS, TCP or UNIX socket of Node that was made with `allowHalfOpen`. */
export class SocketClient implements ConnectClient {
  readonly wire: Socket;

  constructor(socket: Socket) {
    this.wire = socket;
    // The close event follows the error.
    socket.on("error", () => undefined);
  }

  side(): WatchedSide {
    return new SocketSide(this.wire);
  }

  reply(bytes: Uint8Array, onWritten: () => void): void {
    this.wire.write(bytes, onWritten);
  }

  /** Always true over TLS: each write is a record, and a reader gets one record at a time. */
  hasReadAll(): boolean {
    const fd = this.wire instanceof TLSSocket ? undefined : descriptorOf(this.wire);
    return fd === undefined || sendQueueBytes(fd) === 0;
  }
}

/** A UNIX stream of kernel/reactor. */
export class UnixClient implements ConnectClient {
  readonly wire: UnixStream;

  constructor(stream: UnixStream) {
    this.wire = stream;
  }

  side({ closeLingerMs }: { readonly closeLingerMs: number | undefined }): WatchedSide {
    return new StreamSide(this.wire, { detectsClose: true, closeLingerMs });
  }

  reply(bytes: Uint8Array, onWritten: () => void): void {
    this.wire.write(bytes);
    onWritten();
  }

  hasReadAll(): boolean {
    return this.wire.writableLength === 0 && (this.wire.sendQueueBytes() ?? 0) === 0;
  }
}
