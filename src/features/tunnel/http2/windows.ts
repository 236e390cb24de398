import type { SessionSettings } from "./session.ts";

/** Receive window of a session; a frontend's session has many streams. */
export const SESSION_WINDOW_BYTES = 16 * 1024 * 1024;

/** Several packets of 64 KiB with their heads. Frames slightly smaller than a packet reduce the throughput by a tenth. */
export const MAX_FRAME_BYTES = 256 * 1024;

/**
 * A window that is enough for 40 MB/s over a round trip of 200 ms, since half of it may wait to be given back, and as large as grpc-go's can be. Bytes under way cannot be
 * overtaken, so a session whose window can grow begins with one that is enough for a near link.
 */
export const DEFAULT_SETTINGS: SessionSettings = {
  streamWindowBytes: 16 * 1024 * 1024,
  nearWindowBytes: 4 * 1024 * 1024,
  firstWindowBytes: 512 * 1024,
};

/** The streams that a frontend's session may have whose bytes nobody takes before they stop the others of the session. */
const MAX_STALLED_FRONTENDS = 4096;
const FRONTEND_WINDOW_BYTES = 256 * 1024;

/**
 * A small window is enough for frontends, which are near. They reset a stream for each connection that they cancel, if their tunnel is
 * reusable. With the default limit of resets, the session would end with all its connections.
 */
export const FRONTEND_SETTINGS: SessionSettings = {
  streamWindowBytes: FRONTEND_WINDOW_BYTES,
  resetsPerSecond: 10_000,
  maxUnconsumedBytes: MAX_STALLED_FRONTENDS * FRONTEND_WINDOW_BYTES,
};
