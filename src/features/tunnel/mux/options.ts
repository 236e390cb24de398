/** Limits of one link; all sizes in bytes, all times in milliseconds (docs/spec/tunnel.md#8). */
export interface MuxOptions {
  /** Soft limit of the bytes that wait on either side of a connection. The hard limit is twice this. */
  readonly connBufferBytes: number;
  /** Maximum of connections of a link at once; further ones are refused. */
  readonly maxConnections: number;
  /** Maximum of pending dials of a link; further ones are refused. */
  readonly maxPendingDials: number;
  /** The time for which a slow consumer may stop the shared stream of a peer without flow control. */
  readonly slowConsumerGraceMs: number;
  /**
   * `close`: the connection of a slow consumer ends after the grace. `block`: the stream stops until the consumer takes its bytes, as in
   * Konnectivity.
   */
  readonly slowConsumerPolicy: "close" | "block";
}

export const MUX_DEFAULTS: MuxOptions = {
  connBufferBytes: 1024 * 1024,
  maxConnections: 65_536,
  maxPendingDials: 10_000,
  slowConsumerGraceMs: 10_000,
  slowConsumerPolicy: "close",
};

/** Maximum length of a dial's address, in characters: more than a name of 253 bytes, brackets and a port need. */
export const MAX_ADDRESS_LENGTH = 512;
/** Maximum payload of a DATA packet, in bytes; Go peers refuse messages above 4 MiB. */
export const MAX_DATA_BYTES = 64 * 1024;
/**
 * Reading a source pauses when this number of its bytes waits to be sent, also if `connBufferBytes` allows more: further bytes would not
 * leave earlier.
 */
export const SEND_QUEUE_BYTES = 128 * 1024;
/** The number of bytes that all sources of a process together may be read ahead of their links: with many bulk transfers each is read less far ahead, but at least {@link MIN_SEND_QUEUE_BYTES}. */
export const ALL_SEND_QUEUES_BYTES = 16 * 1024 * 1024;
export const MIN_SEND_QUEUE_BYTES = 32 * 1024;
/** Maximum of bytes that one connection may send before the next one sends. */
export const QUANTUM_BYTES = 64 * 1024;
/** Credit of a new connection between peers with flow control. */
export const INITIAL_WINDOW_BYTES = 256 * 1024;
/** Up to this much credit grows while the receiver keeps up. */
export const NEAR_WINDOW_BYTES = 1024 * 1024;
/** Up to this much it grows on a far link that needs it, as far as the process has room: 80 MB/s over a round trip of 200 ms. */
export const MAX_WINDOW_BYTES = 16 * 1024 * 1024;
/** Below this round trip a link is near, in milliseconds: {@link NEAR_WINDOW_BYTES} are half a GB/s there. */
export const FAR_ROUND_TRIP_MS = 2;
/** The part of what all connections may hold by which windows may be larger than on near links. */
export const WINDOW_PART = 1 / 4;
/** Credit of one packet, in bytes: releases before 0.2.0 take no more from one. */
export const MAX_CREDIT_BYTES = 2 * 1024 * 1024;
/** The time for which a tombstone of a dial is kept, and the maximum of tombstones of a link. */
export const TOMBSTONE_MS = 60_000;
export const MAX_TOMBSTONES = 10_000;
/** Maximum of unknown ids that are answered in a second. Each id is answered once. */
export const MAX_UNKNOWN_REPLIES = 1024;
/** Maximum of control packets that may wait to be sent. A peer that causes more without reading them loses the link. */
export const MAX_CONTROL_PACKETS = 100_000;
export const MAX_CONTROL_BYTES = 16 * 1024 * 1024;
/** The time to wait for the peer's CLOSE_RSP, or for progress towards it. */
export const CLOSE_WAIT_MS = 10_000;
/** Default of `--close-linger`: how long an endpoint may take none of the last bytes of a connection that its dialler has closed. */
export const CLOSE_LINGER_MS = 10_000;
/** The time for which the last bytes of a connection that has ended wait for a reader that takes none of them, while the link lives. */
export const UNREAD_MS = 600_000;
