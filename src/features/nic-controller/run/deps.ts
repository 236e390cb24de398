import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { VpcProvider } from "#cloud/vpc";
import type { NicClaimPhase } from "#kube/nic";
import type { NicCluster, NicRules, PodView } from "../world.ts";
import type { ClaimApi } from "./guarded-api.ts";

/** The callbacks for metrics and events. */
export interface NicObserver {
  /** An event of a pod. */
  readonly event: (pod: Pick<PodView, "metadata">, event: PodEvent) => void;
  /** Ports were asked for: how many in one request, and how long it took, in seconds. */
  readonly created: (provider: string, count: number, seconds: number) => void;
  /** Ports of the same identity as another one were deleted. */
  readonly duplicates: (count: number) => void;
  /** A port is active this long after its interface was plugged, in seconds. */
  readonly active: (seconds: number) => void;
  /** Ports without a claim were deleted. */
  readonly orphans: (count: number) => void;
}

/** An event as people read it. */
export interface PodEvent {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly note: string;
}

/** The collaborators of the controller. */
export interface NicControllerDeps {
  readonly api: ClaimApi;
  readonly cluster: NicCluster;
  readonly rules: NicRules;
  /**
   * The provider of a name, or the policy's default one. It asks nothing before it returns. Throws `NicControllerError` with
   * `unknown-provider`.
   */
  readonly provider: (name: string | undefined) => VpcProvider;
  readonly observer: NicObserver;
  readonly log: Logger;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}

/** Settings of the controller. */
export interface NicControllerOptions {
  /** The id of this cluster in ports; asked only once the cluster's lists are there. */
  readonly clusterId: () => string;
  /** Aborts when this process does not lead any more. */
  readonly signal: AbortSignal;
  /** Marks a claim to be reconciled, now or later; keys are `NAMESPACE/UID`. */
  readonly enqueue: (key: string, delayMs?: number) => void;
  /** The time for which a request that makes ports waits for more of them, in milliseconds. Default 20. */
  readonly gatherMs?: number | undefined;
  /** Ports of one request. Default 50. */
  readonly maxBulk?: number | undefined;
}

/** A phase, and since when; for metrics. */
export interface PhaseSample {
  readonly phase: NicClaimPhase;
  /** Milliseconds since the epoch. */
  readonly createdAt: number;
}
