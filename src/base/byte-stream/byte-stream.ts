import type { StreamListeners } from "./listeners.ts";

/** State of the TCP connection as the kernel reports it. */
export interface TransportState {
  /** Segments sent that the peer's host has not acknowledged. */
  readonly unacked: number;
  /** Those of them that the peer's host has received behind a missing one. Default 0. */
  readonly sacked?: number;
  /** Keep-alive and zero-window probes that the peer's host has not answered. */
  readonly probes: number;
  /** Bytes that the peer's host has acknowledged since the connection was made; they have left the kernel's queue. */
  readonly ackedBytes: number;
  /** Time since the last data or acknowledgement from the peer's host, in milliseconds. */
  readonly heardMs: number;
  /** Smoothed round-trip time, in milliseconds; `undefined` before the first measurement, as after a handshake with a repeated SYN. */
  readonly rttMs?: number | undefined;
}

/** A byte stream in two directions, which end separately. The stream starts paused. When both directions have ended, it closes. */
export interface ByteStream extends Pick<StreamListeners, "setOwner" | "on" | "once" | "off"> {
  /** Returns false when the kernel did not accept all bytes: wait for `drain`. The caller may reuse the chunk after the call. */
  write(chunk: Uint8Array): boolean;
  /** Ends the sending direction: the peer gets FIN after all written bytes. */
  end(chunk?: Uint8Array): void;
  /** Stops the events `data` and `end` until {@link resume} is called. */
  pause(): void;
  resume(): void;
  /** Closes the stream at once. Bytes that are not handed to the kernel yet are lost. */
  destroy(): void;
  /** Closes the stream at once, with RST where possible, even if bytes are queued: the peer must not take this for an orderly end. */
  reset(): void;
  /** Limits the size of later `data` events. TLS streams ignore it; of Node.js's sockets the next read may have its size already. */
  limitReads(bytes: number): void;
  /**
   * Turns TCP keep-alive on: the first probe is sent after `idleMs` without traffic, and an unanswered one is repeated each `intervalMs`
   * (default: `idleMs`; Node.js's sockets repeat it each second). Streams without TCP ignore it.
   */
  keepAlive(idleMs: number, intervalMs?: number): void;
  /** The state of the TCP connection. The method is absent, or returns `undefined`, if the stream has no TCP connection or has lost it. */
  transport?(): TransportState | undefined;
  /**
   * While the stream flows and nothing is left to read: whether bytes of the peer have arrived behind a missing segment. The method is absent
   * if the stream cannot tell.
   */
  hasGap?(): boolean;
  /** True after a call of {@link destroy}, or after the connection was lost. */
  readonly destroyed: boolean;
  /** True after `close` was emitted. */
  readonly closed: boolean;
  /** The reason why the connection was lost. */
  readonly errored: Error | undefined;
  /** True after `end` was emitted. */
  readonly readableEnded: boolean;
  /** True if `finish` was emitted or is about to be emitted. */
  readonly writableFinished: boolean;
  /** Bytes that are not handed to the kernel yet. */
  readonly writableLength: number;
  /** True if the stream will emit `drain`. */
  readonly writableNeedDrain: boolean;
  /** Empty if the peer has no address, as on UNIX sockets; its port is 0 then. */
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** Empty once the connection is closed, and on UNIX sockets. */
  readonly localAddress: string;
  readonly localPort: number;
}
