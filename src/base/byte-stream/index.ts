/**
 * A connection as those see it who pass bytes on: the common face of Node's sockets and of our own ones.
 *
 * Owns: what is promised of such a connection. Refuses to know: how it is made and what is said on it.
 *
 * ```ts
 * stream.on("data", (chunk) => other.write(chunk) || stream.pause());
 * stream.once("end", () => other.end());
 * ```
 */
import type { StreamListeners } from "./listeners.ts";

export { StreamListeners } from "./listeners.ts";
export { NodeStream } from "./node-stream.ts";

/** What a stream tells. */
export interface ByteStreamEvents {
  /** The bytes may be overwritten once the listener has returned: who keeps them copies them. */
  data: [chunk: Uint8Array];
  /** The peer has said all that it had to say. */
  end: [];
  /** What was written has been handed to the kernel, after a `write` that returned false. */
  drain: [];
  /** All that was written has been handed to the kernel, and the end of it. */
  finish: [];
  /** The descriptor is closed; `errored` says whether it was in order. The last event. */
  close: [];
}

/** What the kernel knows of the way to a peer, which no byte that was read tells. */
export interface TransportState {
  /** Segments on their way that the peer's host has not acknowledged. */
  readonly unacked: number;
  /** Probes that it has not answered. */
  readonly probes: number;
  /** Bytes that it has acknowledged since the connection was made: they have left the kernel's queue. */
  readonly ackedBytes: number;
  /** Since anything came from it, data or acknowledgement, milliseconds. */
  readonly heardMs: number;
}

/** Two ways of bytes, each with an end of its own. Paused at first. It closes by itself when both ways have ended. */
export interface ByteStream extends Pick<StreamListeners, "on" | "once" | "off"> {
  /** False when the peer does not keep up: wait for `drain`. The chunk is the caller's again when it returns. */
  write(chunk: Uint8Array): boolean;
  /** Nothing more is written; the peer sees the end once it has all that was. */
  end(chunk?: Uint8Array): void;
  /** No `data` and no `end` until {@link resume}. */
  pause(): void;
  resume(): void;
  /** Closes at once; what is not handed to the kernel yet is lost. */
  destroy(): void;
  /** Closes at once so that the peer cannot take it for an orderly end: with RST where that can be, also with bytes in the queue. */
  reset(): void;
  /** From now on one `data` has no more bytes than that, where the stream can help it: TLS decides for itself. */
  limitReads(bytes: number): void;
  /** Asks an idle peer whether it is there, first after so many milliseconds. */
  keepAlive(idleMs: number): void;
  /** Absent, and `undefined`, where there is no kernel to ask: no TCP below, or none any more. */
  transport?(): TransportState | undefined;
  /** {@link destroy} was called, or the connection lost. */
  readonly destroyed: boolean;
  /** `close` was told. */
  readonly closed: boolean;
  /** Why it was lost. */
  readonly errored: Error | undefined;
  /** `end` was told. */
  readonly readableEnded: boolean;
  /** `finish` was told or is about to be. */
  readonly writableFinished: boolean;
  /** Bytes that wait to be handed to the kernel. */
  readonly writableLength: number;
  /** A `drain` will come. */
  readonly writableNeedDrain: boolean;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** Empty when the connection is not there any more. */
  readonly localAddress: string;
  readonly localPort: number;
}
