import type { Clock } from "#base/clock";
import type { Header } from "../hpack.ts";
import { DEFAULT_WINDOW_BYTES, MAX_MAX_FRAME_BYTES, MAX_WINDOW_BYTES, MIN_MAX_FRAME_BYTES } from "./frames.ts";
import type { Http2Stream, Http2StreamEvents } from "./stream.ts";

/** Settings and bounds of a connection. */
export interface Http2Options {
  /** Time for the rates of floods. */
  readonly clock: Pick<Clock, "monotonic">;
  /** Receive window of a stream, 65,535 to 2^31-1 bytes. Default: 65,535. */
  readonly streamWindowBytes?: number;
  /** Receive window of the connection, 65,535 to 2^31-1 bytes. Default: 65,535. */
  readonly connectionWindowBytes?: number;
  /**
   * While at most this many received bytes are not consumed, the connection's window opens again when bytes come, not when they are consumed: then
   * a stream that is not read holds up no other. Above, it waits for `consume`. So the peer can make the user hold this and a window of the
   * connection. Default: twice the connection's window.
   */
  readonly maxUnconsumedBytes?: number;
  /** Largest frame that the peer may send, 16,384 to 16,777,215 bytes. Default: 16,384. */
  readonly maxFrameBytes?: number;
  /** Largest DATA frame that is sent, if the peer allows it: a stream's turn. At least 16,384 bytes. Default: 65,536. */
  readonly maxSentFrameBytes?: number;
  /** Streams that the peer may have open. Default: 100. */
  readonly maxConcurrentStreams?: number;
  /** Limit of the headers of a message, bytes with 32 for each header. Default: 65,536. */
  readonly maxHeaderListBytes?: number;
  /** Own streams that may wait for the peer's limit; `openStream` refuses more. Default: 1,000. */
  readonly maxPendingStreams?: number;
  /** {@link Http2Stream.sendable} is what is missing to this many waiting bytes. Default: 262,144. */
  readonly sendMarkBytes?: number;
  /** A stream with more waiting bytes is reset. Default: 67,108,864. */
  readonly maxQueuedBytes?: number;
  /**
   * Bytes of answers, headers and other frames besides DATA that may wait when the peer opens a stream; above, the connection ends.
   * Default: 1,048,576.
   */
  readonly maxOwedBytes?: number;
  /** Streams that the peer may cause to be reset at once, and then each second, before the connection ends. Default: 1,000 and 33, as in nghttp2. */
  readonly resetBurst?: number;
  readonly resetsPerSecond?: number;
  /** Frames without content that the peer may send at once, and then each second; data in between allows more. Default: 10,000 and 1,000. */
  readonly idleFrameBurst?: number;
  readonly idleFramesPerSecond?: number;
  /** The amount of both limits that the peer has used up on earlier connections. Default: nothing. */
  readonly spent?: SpentLimits;
}

/** The amounts that a peer has used up of its flood limits, as the times in which they are restored, in milliseconds. */
export interface SpentLimits {
  /** The time in which the limit of frames without content is restored. */
  readonly framesMs: number;
  /** The time in which the limit of resets is restored. */
  readonly resetsMs: number;
}

/** The reason why a connection has ended. */
export interface Http2ConnectionFault {
  /** RFC 9113 section 7. */
  readonly code: number;
  readonly message: string;
}

/** The events of a connection. The rules of {@link Http2StreamEvents} hold. */
export interface Http2Events {
  /** There are bytes to write. Called once; the next call comes after `takeOutput` has left nothing. */
  onWantsWrite(): void;
  /** A request, on the server. Returns the events of the stream. */
  onRequest(stream: Http2Stream, headers: readonly Header[]): Http2StreamEvents;
  /** The peer opens no stream any more and accepts none. Streams go on, except those that it has not acted on. */
  onGoAway(code: number, message: string): void;
  /** A PING of the peer, which has been answered. */
  onPing(): void;
  /** The answer to a PING, with its eight bytes. */
  onPong(opaque: Uint8Array): void;
  /** The peer has broken the protocol: its streams have closed, a GOAWAY is in the output, and nothing is read any more. */
  onFailed(fault: Http2ConnectionFault): void;
}

/** The options with their defaults. Throws `RangeError` (a bug) for a value out of its range. */
export function completeOptions(options: Http2Options): Required<Http2Options> {
  const connectionWindowBytes = options.connectionWindowBytes ?? DEFAULT_WINDOW_BYTES;
  const complete = {
    clock: options.clock,
    streamWindowBytes: options.streamWindowBytes ?? DEFAULT_WINDOW_BYTES,
    connectionWindowBytes,
    maxUnconsumedBytes: options.maxUnconsumedBytes ?? 2 * connectionWindowBytes,
    maxFrameBytes: options.maxFrameBytes ?? MIN_MAX_FRAME_BYTES,
    maxSentFrameBytes: options.maxSentFrameBytes ?? 65_536,
    maxConcurrentStreams: options.maxConcurrentStreams ?? 100,
    maxHeaderListBytes: options.maxHeaderListBytes ?? 65_536,
    maxPendingStreams: options.maxPendingStreams ?? 1000,
    sendMarkBytes: options.sendMarkBytes ?? 262_144,
    maxQueuedBytes: options.maxQueuedBytes ?? 67_108_864,
    maxOwedBytes: options.maxOwedBytes ?? 1_048_576,
    resetBurst: options.resetBurst ?? 1000,
    resetsPerSecond: options.resetsPerSecond ?? 33,
    idleFrameBurst: options.idleFrameBurst ?? 10_000,
    spent: options.spent ?? { framesMs: 0, resetsMs: 0 },
    idleFramesPerSecond: options.idleFramesPerSecond ?? 1000,
  };
  check("streamWindowBytes", complete.streamWindowBytes, DEFAULT_WINDOW_BYTES, MAX_WINDOW_BYTES);
  check("connectionWindowBytes", complete.connectionWindowBytes, DEFAULT_WINDOW_BYTES, MAX_WINDOW_BYTES);
  check("maxFrameBytes", complete.maxFrameBytes, MIN_MAX_FRAME_BYTES, MAX_MAX_FRAME_BYTES);
  check("maxSentFrameBytes", complete.maxSentFrameBytes, MIN_MAX_FRAME_BYTES, MAX_MAX_FRAME_BYTES);
  return complete;
}

function check(name: string, value: number, least: number, most: number): void {
  if (!(value >= least && value <= most)) throw new RangeError(`${name} is ${value}, not ${least} to ${most}`);
}
