/** Limits of one link; all sizes in bytes, all times in milliseconds (docs/spec/tunnel.md#8). */
export interface MuxOptions {
  /** Of one connection, so much may wait on either side; the hard limit is twice this. */
  readonly connBufferBytes: number;
  /** Connections of a link at once; more are refused. */
  readonly maxConnections: number;
  /** Dials of a link at once that have no answer; more are refused. */
  readonly maxPendingDials: number;
  /** How long the shared stream may stand still for one slow reader of a peer without flow control. */
  readonly slowConsumerGraceMs: number;
  /** `block`: stand still for as long as it takes, as upstream does. */
  readonly slowConsumerPolicy: "close" | "block";
}

export const MUX_DEFAULTS: MuxOptions = {
  connBufferBytes: 1024 * 1024,
  maxConnections: 65_536,
  maxPendingDials: 10_000,
  slowConsumerGraceMs: 10_000,
  slowConsumerPolicy: "close",
};

/** A DATA packet carries at most this; Go peers refuse messages of 4 MiB. */
export const MAX_DATA_BYTES = 64 * 1024;
/**
 * Reading a source pauses when so much of it waits to be sent, even where more would be allowed: beyond what the link takes
 * at a time it would only be held longer.
 */
export const SEND_QUEUE_BYTES = 128 * 1024;
/** What one connection may send before the next has its turn. */
export const QUANTUM_BYTES = 64 * 1024;
/** Credit of a new connection between peers with flow control. */
export const INITIAL_WINDOW_BYTES = 256 * 1024;
/** To which credit grows while bytes move. */
export const MAX_WINDOW_BYTES = 1024 * 1024;
/** Dials given up whose outcome may still arrive: remembered so long, and at most so many a link. */
export const TOMBSTONE_MS = 60_000;
export const MAX_TOMBSTONES = 10_000;
/** Replies to unknown ids: one an id a second, and at most so many a second. */
export const MAX_UNKNOWN_REPLIES = 1024;
/** Control packets that wait to be sent; a peer that asks for more without reading loses the link. */
export const MAX_CONTROL_PACKETS = 100_000;
export const MAX_CONTROL_BYTES = 16 * 1024 * 1024;
/** How long the other side's confirmation of a close is waited for. */
export const CLOSE_WAIT_MS = 10_000;
