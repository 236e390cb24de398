import type { StreamListeners } from "./listeners.ts";

/** State of the TCP connection as the kernel reports it. */
export interface TransportState {
  /** Segments sent that the peer's host has not acknowledged. */
  readonly unacked: number;
  /** Keep-alive and zero-window probes that it has not answered. */
  readonly probes: number;
  /** Bytes that it has acknowledged since the connection was made; they have left the kernel's queue. */
  readonly ackedBytes: number;
  /** Time since the last data or acknowledgement from it, milliseconds. */
  readonly heardMs: number;
}

/** A byte stream in both directions, each with an end of its own. Paused at first. It closes by itself when both directions have ended. */
export interface ByteStream extends Pick<StreamListeners, "on" | "once" | "off"> {
  /** False when the kernel did not accept all bytes: wait for `drain`. The caller may reuse the chunk after the call. */
  write(chunk: Uint8Array): boolean;
  /** Ends the sending: the peer gets FIN behind all written bytes. */
  end(chunk?: Uint8Array): void;
  /** No `data` and no `end` until {@link resume}. */
  pause(): void;
  resume(): void;
  /** Closes at once. Bytes that are not handed to the kernel yet are lost. */
  destroy(): void;
  /** Closes at once with RST where possible, also with bytes in the queue, so that the peer does not mistake it for an orderly end. */
  reset(): void;
  /** Limits the size of later `data` events. TLS streams and Node's sockets ignore it. */
  limitReads(bytes: number): void;
  /** Turns TCP keep-alive on; the first probe is sent after `idleMs` without traffic. */
  keepAlive(idleMs: number): void;
  /** Absent or `undefined` if there is no TCP connection below, or no longer one. */
  transport?(): TransportState | undefined;
  /** {@link destroy} was called, or the connection was lost. */
  readonly destroyed: boolean;
  /** `close` was emitted. */
  readonly closed: boolean;
  /** The reason why the connection was lost. */
  readonly errored: Error | undefined;
  /** `end` was emitted. */
  readonly readableEnded: boolean;
  /** `finish` was emitted or is about to be. */
  readonly writableFinished: boolean;
  /** Bytes that are not handed to the kernel yet. */
  readonly writableLength: number;
  /** A `drain` will be emitted. */
  readonly writableNeedDrain: boolean;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** Empty once the connection is closed. */
  readonly localAddress: string;
  readonly localPort: number;
}
