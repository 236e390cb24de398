import type { Logger } from "#base/log";
import type { Evidence, Settings, Snapshot, SnapshotSource } from "#base/uplink-model";
import type { TcpStreamsKind } from "#kernel/reactor";
import type { TunnelLimiterMemory } from "../front/index.ts";
import type { PenaltyEvent } from "../select/index.ts";
import type { Recorder } from "../stats/index.ts";

/** A page that only the first thread can make, because each other thread knows only a part of the data. */
export type Page = "healthz" | "metrics" | "readyz" | "readyz?verbose";

/** Dependencies that the threads share with the first one. */
export interface ThreadsDeps {
  readonly log: Logger;
  readonly evidence: Evidence;
  readonly snapshots: Pick<SnapshotSource, "current" | "refresh">;
  readonly record: Recorder;
  /** Another thread has changed a penalty. */
  readonly onPenalty: (event: PenaltyEvent) => void;
  readonly page: (page: Page) => Promise<string>;
  /** A thread has failed because of a bug; the program must end. */
  readonly onBug: (error: unknown) => void;
}

/** Options of the threads. */
export interface ThreadsOptions {
  /** Number of threads in addition to the first thread. */
  readonly threads: number;
  readonly settings: Settings;
  readonly limiter: TunnelLimiterMemory;
  readonly mark: number | undefined;
  readonly hostsPath: string | undefined;
  readonly streams: TcpStreamsKind;
}

/** Further threads that accept at the same addresses, as the first thread uses them. */
export interface Threads {
  /** True once every thread listens at the listener of that name. */
  isBound(name: string): boolean;
  setSnapshot(snapshot: Snapshot): void;
  setSettings(settings: Settings): void;
  /** Passes a penalty of the first thread to all other threads. */
  sendPenalty(event: PenaltyEvent): void;
  /** Tells all threads to refuse new requests from now on. */
  drain(): void;
  /** Ends tunnels and threads. Resolves when all have ended, or after two seconds. */
  close(): Promise<void>;
}

/** Starts {@link Threads}, which the caller closes. */
export type StartThreads = (deps: ThreadsDeps, options: ThreadsOptions) => Threads;
