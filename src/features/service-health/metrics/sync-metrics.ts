import type { Clock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { familyName } from "../state/index.ts";
import type { ServiceProxyMetrics } from "./service-proxy-metrics.ts";

/** Result of a successful sync. */
export interface SyncedReport {
  readonly kind: "full" | "partial";
  readonly durationMs: number;
  /** When the changes of this sync were made, according to the API, milliseconds since the epoch. */
  readonly triggeredAt: readonly number[];
  /** Bytes written to the kernel. */
  readonly bytes: number;
}

/** Kind of a changed object. */
export type ChangeKind = "service" | "endpoint";

/** The metrics of syncs (docs/spec/service-proxy.md#1.7). All of them exist for each family from the start. */
export class SyncMetrics {
  readonly #metrics: ServiceProxyMetrics;
  readonly #clock: Clock;
  /** Start of this program, milliseconds since the epoch. Earlier changes are not measured. */
  readonly #startedMs: number;
  readonly #families: readonly IpFamily[];
  readonly #pending = new Map<string, number>();

  constructor(
    metrics: ServiceProxyMetrics,
    options: { readonly families: readonly IpFamily[]; readonly clock: Clock },
  ) {
    const { families, clock } = options;
    this.#metrics = metrics;
    this.#clock = clock;
    this.#startedMs = clock.now();
    this.#families = families;
    for (const family of families) this.#startAtZero(family);
    metrics.contested.set(0);
  }

  /** Counts a change that waits for the family's next sync. */
  changed(kind: ChangeKind, family: IpFamily): void {
    const { serviceChanges, endpointChanges } = this.#metrics;
    (kind === "service" ? serviceChanges : endpointChanges).inc();
    this.#setPending(kind, family, (this.#pending.get(`${kind} ${family}`) ?? 0) + 1);
  }

  /** Records that a sync was requested. */
  queued(family: IpFamily): void {
    this.#metrics.lastQueued.set(labelOf(family), this.#clock.now() / 1000);
  }

  /** Records that a sync begins: it includes all changes that wait. */
  syncing(family: IpFamily): void {
    this.#setPending("service", family, 0);
    this.#setPending("endpoint", family, 0);
  }

  /** Records that a sync succeeded. Changes that were made before this program started are not measured. */
  synced(family: IpFamily, { kind, durationMs, triggeredAt, bytes }: SyncedReport): void {
    const label = labelOf(family);
    const nowMs = this.#clock.now();
    const { syncSeconds, fullSyncSeconds, partialSyncSeconds, lastSynced, transactionBytes } = this.#metrics;
    syncSeconds.observe(label, durationMs / 1000);
    (kind === "full" ? fullSyncSeconds : partialSyncSeconds).observe(label, durationMs / 1000);
    lastSynced.set(label, nowMs / 1000);
    transactionBytes.set(label, bytes);
    for (const at of triggeredAt) {
      if (at >= this.#startedMs) this.#metrics.programmingSeconds.observe(label, Math.max(0, nowMs - at) / 1000);
    }
  }

  /** Records that a sync failed. */
  failed(family: IpFamily): void {
    this.#metrics.syncFailures.inc(labelOf(family));
  }

  /** Records that stale objects could not be removed, though the sync succeeded. */
  cleanupFailed(family: IpFamily): void {
    this.#metrics.cleanupFailures.inc(labelOf(family));
  }

  /** Records that a pass over connection tracking deleted `flows` flows. */
  flowsDeleted(family: IpFamily, flows: number, durationMs: number): void {
    this.#metrics.deletedFlows.inc(labelOf(family), flows);
    this.#metrics.flowSeconds.observe(labelOf(family), durationMs / 1000);
  }

  /** Sets the number of service ports of a policy that have endpoints on other nodes only. */
  noLocalEndpoints(family: IpFamily, policy: "internal" | "external", ports: number): void {
    this.#metrics.noLocalEndpoints.set({ traffic_policy: policy, ...labelOf(family) }, ports);
  }

  /** Sets the number of objects of a kind in a family's table. `kind` is one of ours, never text of a peer. */
  objects(family: IpFamily, kind: string, count: number): void {
    this.#metrics.objects.set({ kind, ...labelOf(family) }, count);
  }

  /** Adds clients that Services above their share of session affinity have lost. */
  affinityTrimmed(family: IpFamily, clients: number): void {
    this.#metrics.affinityTrimmed.inc(labelOf(family), clients);
  }

  /** Sets the number of front ends that Services request but do not get. */
  lostClaims(family: IpFamily, claims: number): void {
    this.#metrics.lostClaims.set(labelOf(family), claims);
  }

  /** Records that a change by another program to our tables was repaired. */
  repaired(): void {
    this.#metrics.driftRepairs.inc();
  }

  /** Records that a conflict with another program has begun, or is over. */
  contested(isOn: boolean): void {
    this.#metrics.contested.set(isOn ? 1 : 0);
  }

  #startAtZero(family: IpFamily): void {
    const label = labelOf(family);
    const metrics = this.#metrics;
    for (const counter of [metrics.syncFailures, metrics.cleanupFailures, metrics.deletedFlows]) counter.inc(label, 0);
    const { lastSynced, lastQueued, transactionBytes, lostClaims } = metrics;
    for (const gauge of [lastSynced, lastQueued, transactionBytes, lostClaims]) gauge.set(label, 0);
    const { syncSeconds, fullSyncSeconds, partialSyncSeconds, programmingSeconds, flowSeconds } = metrics;
    for (const histogram of [syncSeconds, fullSyncSeconds, partialSyncSeconds, programmingSeconds, flowSeconds]) {
      histogram.zero(label);
    }
    for (const policy of ["internal", "external"] as const) this.noLocalEndpoints(family, policy, 0);
  }

  #setPending(kind: ChangeKind, family: IpFamily, count: number): void {
    this.#pending.set(`${kind} ${family}`, count);
    const sum = this.#families.reduce((total, one) => total + (this.#pending.get(`${kind} ${one}`) ?? 0), 0);
    const { serviceChangesPending, endpointChangesPending } = this.#metrics;
    (kind === "service" ? serviceChangesPending : endpointChangesPending).set(sum);
  }
}

/** The label of a family. */
function labelOf(family: IpFamily): { readonly ip_family: "IPv4" | "IPv6" } {
  return { ip_family: familyName(family) };
}
