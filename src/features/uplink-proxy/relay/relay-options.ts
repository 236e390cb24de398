import type { ReplayRule } from "./replay-buffer.ts";

/** The reason why a tunnel ended (docs/spec/uplink-proxy.md#7). */
export type CloseReason = "eof" | "reset" | "idle" | "blackhole" | "drain" | "error";

/** Bytes since the start, counted as they pass. */
export interface ByteCount {
  /** Client to upstream. */
  up: number;
  /** Upstream to client. */
  down: number;
}

/** Limits of one relay. */
export interface RelayOptions {
  /** Longest time without a byte in either direction, unless the destination's host answers keep-alive probes. */
  readonly idleTimeoutMs: number;
  /** Longest time without a byte after an answer, or a part of one, while the destination's host answers keep-alive probes. */
  readonly quietTimeoutMs: number;
  /** Longest time without a byte after one side has ended its sending. */
  readonly halfCloseTimeoutMs: number;
  /**
   * Before the first byte of the destination: bytes of the client that stay unacknowledged for this time, and for six round trips, are
   * blackholed.
   */
  readonly firstByteTimeoutMs: number;
  /** Maximum number of bytes that one direction holds. */
  readonly bufferBytes: number;
  /** The maximum number of bytes of the client that are kept for another uplink until the first byte of the destination comes. */
  readonly replayBytes: number;
  /** The rule for bytes of the client that may be sent twice. Default: only a ClientHello. */
  readonly replay?: ReplayRule | undefined;
}

/** Events of a relay. None of the listeners may throw. */
export interface RelayEvents {
  /** The first byte of the destination has come. */
  onFirstByte(): void;
  /**
   * Bytes of the client were not acknowledged for `firstByteTimeoutMs`, and no byte has come from the destination. Called once for each
   * upstream.
   */
  onBlackhole(): void;
  /**
   * Large segments do not pass, of either direction, while small ones do: the path has a smaller MTU and nobody says so. Called once for each
   * upstream.
   */
  onLargeSegmentsLost(): void;
  /** Both sockets are closed. */
  onClosed(end: RelayEnd): void;
}

/** The result of a relay. */
export interface RelayEnd {
  readonly reason: CloseReason;
  /** True if it was closed for silence while the client waited for the rest of an answer. */
  readonly stalled: boolean;
  /** The limit of silence that has passed, in milliseconds. Set if and only if the reason is `idle`. */
  readonly silentMs?: number;
}
