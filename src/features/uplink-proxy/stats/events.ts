import type { CloseReason } from "../relay/index.ts";
import type { AttemptFailure } from "../select/index.ts";

/** Used instead of the name of an interface for destinations that bypass the uplinks. */
export const DIRECT = "direct";

/** One event as plain data, which threads can send to each other. `ifName` is that of the uplink, or {@link DIRECT}. */
export type StatsEvent =
  /** CONNECT requests, malformed ones included. */
  | { readonly kind: "request"; readonly count: number }
  /** Refused because a limit was reached. */
  | { readonly kind: "overload" }
  /** A request had credentials that are wrong. */
  | { readonly kind: "wrong-token" }
  /** Policy refused the destination. */
  | { readonly kind: "denied" }
  /** No connection could be made. */
  | {
      readonly kind: "failed";
      readonly target: string;
      readonly isNotReady: boolean;
      readonly summary: string;
      readonly failures: readonly AttemptFailure[];
    }
  | {
      readonly kind: "connected";
      readonly target: string;
      readonly ifName: string;
      readonly cost: number;
      readonly failures: readonly AttemptFailure[];
      /** Number of equal connections in a row. */
      readonly count: number;
    }
  /** A connection was blackholed. */
  | { readonly kind: "blackhole"; readonly target: string; readonly ifName: string }
  /** A tunnel continues over another uplink. */
  | { readonly kind: "replayed"; readonly target: string; readonly from: string; readonly to: string }
  /** Attempts that failed during the search for another uplink, or after their request was served. */
  | { readonly kind: "attempts"; readonly target: string; readonly failures: readonly AttemptFailure[] }
  | {
      readonly kind: "closed";
      readonly target: string;
      readonly ifName: string;
      readonly up: number;
      readonly down: number;
      /** Time since the request, in milliseconds; times and bytes are sums over all these tunnels. */
      readonly durationMs: number;
      readonly reason: CloseReason;
      /** Bytes were blackholed over this uplink, and none came back. */
      readonly isBlackholed: boolean;
      /** Number of tunnels. */
      readonly count: number;
    }
  /** Bytes since the last event of this kind. */
  | { readonly kind: "bytes"; readonly ifName: string; readonly up: number; readonly down: number };

/** Receives events: the counters of this thread, or the way to another thread. */
export type Recorder = (event: StatsEvent) => void;
