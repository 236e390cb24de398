import type { CloseReason } from "../relay/index.ts";
import type { AttemptFailure } from "../select/index.ts";

/** How destinations that bypass the uplinks are named where an interface would stand. */
export const DIRECT = "direct";

/** One thing that happened, as plain data: threads tell each other so. `ifName` is that of the uplink, or {@link DIRECT}. */
export type StatsEvent =
  /** So many CONNECTs came, malformed ones too. */
  | { readonly kind: "request"; readonly count: number }
  /** Refused because a limit was reached. */
  | { readonly kind: "overload" }
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
      /** So many connections, one after the other, which found the same. */
      readonly count: number;
    }
  /** A destination swallowed what was sent. */
  | { readonly kind: "blackhole"; readonly target: string; readonly ifName: string }
  /** A tunnel goes on over another uplink. */
  | { readonly kind: "replayed"; readonly target: string; readonly from: string; readonly to: string }
  /** Attempts that failed while another uplink was looked for. */
  | { readonly kind: "attempts"; readonly target: string; readonly failures: readonly AttemptFailure[] }
  | {
      readonly kind: "closed";
      readonly target: string;
      readonly ifName: string;
      readonly up: number;
      readonly down: number;
      /** Since the request; of all of them together, as up and down. */
      readonly durationMs: number;
      readonly reason: CloseReason;
      /** So many tunnels. */
      readonly count: number;
    }
  /** Bytes that passed since the last time this was told. */
  | { readonly kind: "bytes"; readonly ifName: string; readonly up: number; readonly down: number };

/** Where events go: to the counters of this thread, or to another thread. */
export type Recorder = (event: StatsEvent) => void;
