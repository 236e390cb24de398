import { type Clock, systemClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import type { Counter, Gauge, Histogram, Registry } from "#base/metrics";
import { DURATION_BUCKETS, PROGRAMMING_BUCKETS } from "./buckets.ts";
import { familyLabel, familyMetrics, plainMetrics } from "./maker.ts";

/** What a sync that succeeded was. */
export interface SyncedReport {
  readonly kind: "full" | "partial";
  readonly durationMs: number;
  /** When the changes that it brought were made, milliseconds since the epoch, as the API says. */
  readonly triggeredAt: readonly number[];
  /** Bytes given to the kernel. */
  readonly bytes: number;
}

/** Whose change. */
export type ChangeKind = "service" | "endpoint";

/** The metrics of syncs, by kube-proxy's names (docs/spec/service-proxy.md#1.7). */
export class SyncMetrics {
  readonly #clock: Clock;
  /** Changes from before are of no use as measures of ours, milliseconds since the epoch. */
  readonly #startedMs: number;
  readonly #pending = new Map<string, number>();
  readonly #families: readonly IpFamily[];
  readonly #durations: Readonly<Record<"all" | "full" | "partial", Histogram<"ip_family">>>;
  readonly #programming: Histogram<"ip_family">;
  readonly #lastSynced: Gauge<"ip_family">;
  readonly #lastQueued: Gauge<"ip_family">;
  readonly #pendingGauges: Readonly<Record<ChangeKind, Gauge>>;
  readonly #changes: Readonly<Record<ChangeKind, Counter>>;
  readonly #noLocal: Gauge<"traffic_policy" | "ip_family">;
  readonly #syncFailures: Counter<"ip_family">;
  readonly #cleanupFailures: Counter<"ip_family">;
  readonly #flowSeconds: Histogram<"ip_family">;
  readonly #flows: Counter<"ip_family">;
  readonly #bytes: Gauge<"ip_family">;
  readonly #objects: Gauge<"kind" | "ip_family">;
  readonly #losing: Gauge<"ip_family">;
  readonly #repairs: Counter;
  readonly #contested: Gauge;

  constructor(registry: Registry, options: { readonly families: readonly IpFamily[]; readonly clock?: Clock }) {
    const { families, clock = systemClock } = options;
    this.#clock = clock;
    this.#startedMs = clock.now();
    this.#families = families;
    const each = familyMetrics(registry, families);
    const plain = plainMetrics(registry);
    const duration = (which: string, help: string) =>
      each.histogram(`sync_${which}proxy_rules_duration_seconds`, help, DURATION_BUCKETS);
    this.#durations = {
      all: duration("", "How long syncs take."),
      full: duration("full_", "How long syncs take that compare everything."),
      partial: duration("partial_", "How long syncs of changes take."),
    };
    this.#programming = each.histogram(
      "network_programming_duration_seconds",
      "From a change of a Service's endpoints to the rules in the kernel.",
      PROGRAMMING_BUCKETS,
    );
    this.#lastSynced = each.gauge("sync_proxy_rules_last_timestamp_seconds", "When a sync last succeeded.");
    this.#lastQueued = each.gauge(
      "sync_proxy_rules_last_queued_timestamp_seconds",
      "When a sync was last asked for; far above the last success: it hangs.",
    );
    const pending = (kind: ChangeKind) =>
      plain.gauge(`sync_proxy_rules_${kind}_changes_pending`, `Changes of ${kind}s that wait for a sync.`);
    const changes = (kind: ChangeKind) =>
      plain.counter(`sync_proxy_rules_${kind}_changes_total`, `Changes of ${kind}s.`);
    this.#pendingGauges = { service: pending("service"), endpoint: pending("endpoint") };
    this.#changes = { service: changes("service"), endpoint: changes("endpoint") };
    this.#noLocal = plain.gauge(
      "sync_proxy_rules_no_local_endpoints_total",
      "Ports of Services of policy Local that have endpoints, but none here.",
      ["traffic_policy", "ip_family"],
    );
    this.#syncFailures = each.counter("sync_proxy_rules_nftables_sync_failures_total", "Syncs that failed.");
    this.#cleanupFailures = each.counter(
      "sync_proxy_rules_nftables_cleanup_failures_total",
      "Removals of what is no longer wanted that failed.",
    );
    this.#flowSeconds = each.histogram(
      "conntrack_reconciler_sync_duration_seconds",
      "How long it takes to look for stale flows.",
      DURATION_BUCKETS,
    );
    this.#flows = each.counter("conntrack_reconciler_deleted_entries_total", "Stale flows that were forgotten.");
    this.#bytes = each.gauge("nftables_transaction_bytes", "Bytes given to the kernel by the last sync.");
    this.#objects = plain.gauge("nftables_objects", "What our tables hold.", ["kind", "ip_family"]);
    this.#losing = each.gauge(
      "lost_address_claims",
      "Addresses and ports, and NodePorts, that Services ask for and do not have: they are another's.",
    );
    this.#repairs = plain.counter("drift_repairs_total", "Repairs of what others did to our tables.");
    this.#contested = plain.gauge("nftables_contested", "1 while another program changes our tables all the time.");
    this.#contested.set(0);
    for (const family of families) {
      for (const policy of ["internal", "external"] as const) this.noLocalEndpoints(family, policy, 0);
    }
  }

  /** A change came that a family's next sync is for. */
  changed(kind: ChangeKind, family: IpFamily): void {
    this.#changes[kind].inc();
    this.#setPending(kind, family, (this.#pending.get(`${kind} ${family}`) ?? 0) + 1);
  }

  /** A sync was asked for. */
  queued(family: IpFamily): void {
    this.#lastQueued.set(familyLabel(family), this.#clock.now() / 1000);
  }

  /** A sync begins, with all the changes that wait. */
  syncing(family: IpFamily): void {
    this.#setPending("service", family, 0);
    this.#setPending("endpoint", family, 0);
  }

  /** A sync succeeded. Changes that were made before this program started are not measured. */
  synced(family: IpFamily, report: SyncedReport): void {
    const label = familyLabel(family);
    const nowMs = this.#clock.now();
    this.#observe(family, report.kind, report.durationMs);
    this.#lastSynced.set(label, nowMs / 1000);
    this.#bytes.set(label, report.bytes);
    for (const at of report.triggeredAt) {
      if (at >= this.#startedMs) this.#programming.observe(label, Math.max(0, nowMs - at) / 1000);
    }
  }

  /** A sync failed. */
  failed(family: IpFamily): void {
    this.#syncFailures.inc(familyLabel(family));
  }

  /** What is stale could not be removed; the sync succeeded all the same. */
  cleanupFailed(family: IpFamily): void {
    this.#cleanupFailures.inc(familyLabel(family));
  }

  /** Flows were looked at, and so many forgotten. */
  forgotten(family: IpFamily, flows: number, durationMs: number): void {
    this.#flows.inc(familyLabel(family), flows);
    this.#flowSeconds.observe(familyLabel(family), durationMs / 1000);
  }

  /** So many ports of a policy have endpoints elsewhere only. */
  noLocalEndpoints(family: IpFamily, policy: "internal" | "external", ports: number): void {
    this.#noLocal.set({ traffic_policy: policy, ...familyLabel(family) }, ports);
  }

  /** So many elements (or chains, rules) of a kind are in a family's table. `kind` is one of ours, never a peer's text. */
  objects(family: IpFamily, kind: string, count: number): void {
    this.#objects.set({ kind, ...familyLabel(family) }, count);
  }

  /** So many front ends are asked for by Services that do not have them. */
  losing(family: IpFamily, claims: number): void {
    this.#losing.set(familyLabel(family), claims);
  }

  /** What somebody else did to our tables was undone. */
  repaired(): void {
    this.#repairs.inc();
  }

  /** Another program changes our tables all the time, or has ceased to. */
  contested(isOn: boolean): void {
    this.#contested.set(isOn ? 1 : 0);
  }

  #observe(family: IpFamily, kind: "full" | "partial", durationMs: number): void {
    this.#durations.all.observe(familyLabel(family), durationMs / 1000);
    this.#durations[kind].observe(familyLabel(family), durationMs / 1000);
  }

  #setPending(kind: ChangeKind, family: IpFamily, count: number): void {
    this.#pending.set(`${kind} ${family}`, count);
    const sum = this.#families.reduce((total, one) => total + (this.#pending.get(`${kind} ${one}`) ?? 0), 0);
    this.#pendingGauges[kind].set(sum);
  }
}
