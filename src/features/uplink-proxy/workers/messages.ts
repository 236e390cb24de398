import type { LogFields, LogLevel } from "#base/log";
import type { DialFailure, FailureContext } from "#base/uplink-model";
import type { TcpStreamsKind } from "#kernel/reactor";
import type { TunnelLimiterMemory } from "../front/index.ts";
import type { Page } from "../proxy/index.ts";
import type { PenaltyEvent } from "../select/index.ts";
import type { StatsEvent } from "../stats/index.ts";

/** The data that a thread starts with. */
export interface WorkerInit {
  /** Encoded `Settings`. */
  readonly settings: unknown;
  /** Encoded `Snapshot`. */
  readonly snapshot: unknown;
  /** The memory of the first thread's `TunnelLimiter`. */
  readonly limiter: TunnelLimiterMemory;
  readonly mark: number | undefined;
  readonly hostsPath: string | undefined;
  readonly streams: TcpStreamsKind;
  /** The levels of the log lines that are written. */
  readonly logLevels: readonly LogLevel[];
}

/** To a thread. */
export type ToWorker =
  | { readonly kind: "settings"; readonly settings: unknown }
  | { readonly kind: "snapshot"; readonly snapshot: unknown }
  | { readonly kind: "penalty"; readonly event: PenaltyEvent }
  | { readonly kind: "page"; readonly id: number; readonly body: string }
  /** The thread must refuse new requests. */
  | { readonly kind: "drain" }
  /** The thread must end, together with its tunnels. */
  | { readonly kind: "close" };

/** One call of `Evidence`. */
export type EvidenceCall =
  | {
      readonly call: "dialSucceeded" | "firstByte";
      readonly uplink: string;
      readonly destination: string;
    }
  | {
      readonly call: "blackholed" | "stalled";
      readonly uplink: string;
      readonly destination: string;
      readonly context: FailureContext;
    }
  | {
      readonly call: "dialFailed";
      readonly uplink: string;
      readonly destination: string;
      readonly failure: DialFailure;
      readonly text: string;
      readonly context: FailureContext;
    };

/** One message of a thread. */
export type Note =
  | { readonly kind: "stats"; readonly event: StatsEvent }
  | { readonly kind: "evidence"; readonly call: EvidenceCall }
  | { readonly kind: "log"; readonly level: LogLevel; readonly message: string; readonly fields: LogFields };

/** From a thread. */
export type FromWorker =
  /** An array of {@link Note} as JSON. */
  | { readonly kind: "notes"; readonly notes: string }
  | { readonly kind: "penalty"; readonly event: PenaltyEvent }
  | { readonly kind: "page"; readonly id: number; readonly page: Page }
  /** Reads the state of the addresses again. */
  | { readonly kind: "refresh" }
  /** Names of the listeners that are bound here. */
  | { readonly kind: "bound"; readonly names: readonly string[] }
  /** A bug. */
  | { readonly kind: "bug"; readonly text: string };
