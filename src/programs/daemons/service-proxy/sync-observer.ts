import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type EventSink,
  type HealthEvent,
  type NodeHealth,
  type ServiceHealth,
  type ServicePorts,
  type SyncMetrics,
  serviceHealth,
} from "#features/service-health";
import {
  type FamilyProxy,
  type LostClaim,
  type SyncObserver,
  type Tracker,
  tooLargeText,
} from "#features/service-proxy";
import { isKernelError } from "#kernel/errors";
import { parseObjectKey } from "#kube/client";
import { countObjects } from "./object-counts.ts";
import type { Readiness } from "./readiness.ts";
import type { SmallHeap } from "./small-heap.ts";

/** Receivers of events of syncs. */
export interface SyncListeners {
  readonly syncs: SyncMetrics;
  readonly health: NodeHealth;
  readonly readiness: Pick<Readiness, "synced" | "failed" | "flows">;
  readonly heap: Pick<SmallHeap, "synced">;
  readonly ports: ServicePorts;
  readonly onEvent: EventSink;
  /** Called after each successful sync of either family. */
  readonly onSynced?: () => void;
  /** Called when the kernel refuses a transaction because the tables differ from the result of the last sync. */
  readonly onDisagreement: () => void;
  readonly log: Logger;
  readonly proxyOf: (family: IpFamily) => FamilyProxy | undefined;
}

/** Reports the events of syncs to health, health ports, metrics, logs and Events. */
export function syncObserver(at: SyncListeners): SyncObserver {
  const { syncs, health, ports, log, proxyOf } = at;
  return {
    queued: (family) => {
      health.queued(family);
      syncs.queued(family);
    },
    started: (family) => {
      health.syncing(family);
      syncs.syncing(family);
    },
    synced: (family, report, progress) => {
      health.synced(family);
      at.readiness.synced(family, progress);
      at.heap.synced(family);
      syncs.synced(family, report);
      log.debug("synced", { family, ...report });
      at.onSynced?.();
      const proxy = proxyOf(family);
      if (proxy === undefined) return;
      ports.setServices(family, healthCheckedServices(proxy.tracker));
      countObjects(syncs, family, proxy.plane);
    },
    failed: (family, error) => {
      health.failed(family, error);
      at.readiness.failed(family, error);
      syncs.failed(family);
      if (isKernelError(error, "already-exists", "not-found")) at.onDisagreement();
    },
    flowsDeleted: (family, flows, durationMs) => {
      at.readiness.flows(family);
      syncs.flowsDeleted(family, flows, durationMs);
    },
    flowsFailed: (family, error) => at.readiness.flows(family, error),
    claimLost: (_family, claim) => reportLost(claim, at),
    tooLarge: (family, found) => reportTooLarge(family, found, at),
    lostClaims: (family, claims) => syncs.lostClaims(family, claims),
  };
}

/** The Services with a health check of their own, and their counts. */
export function healthCheckedServices(tracker: Pick<Tracker, "healthChecked" | "ports">): readonly ServiceHealth[] {
  return [...tracker.healthChecked].flatMap((service) => serviceHealth(tracker.ports(service)) ?? []);
}

/** Logs a Service that is too large and writes an Event. */
function reportTooLarge(
  family: IpFamily,
  { service, elements }: { readonly service: string; readonly elements: number },
  { log, onEvent }: Pick<SyncListeners, "log" | "onEvent">,
): void {
  const { namespace = "", name } = parseObjectKey(service);
  const text = tooLargeText(family, elements);
  log.error("a Service is too large and has no rules", { service, why: text });
  const note = `The Service has no rules on nodes: ${text}. Give it fewer ports, externalIPs, endpoints or loadBalancerSourceRanges.`;
  onEvent({ about: { namespace, name }, type: "Warning", reason: "ServiceTooLarge", note });
}

/** Logs a lost claim and writes an Event, so that the Service's owner finds the reason. */
function reportLost(
  { service, holder, owner, frontEnd }: LostClaim,
  { log, onEvent }: Pick<SyncListeners, "log" | "onEvent">,
): void {
  const [namespace = "", name = ""] = service.split("/");
  const tell = (reason: HealthEvent["reason"], note: string): void =>
    onEvent({ about: { namespace, name }, type: "Warning", reason, note });
  if (owner !== undefined) {
    const fix =
      "choose an address and port that nothing else has, or see --service-addresses in the guide of service-proxy";
    log.warn("a Service requests an address that it cannot have", { service, frontEnd, owner, fix });
    tell("ExternalAddressRefused", `${frontEnd} cannot be used by a Service: the address belongs to ${owner}`);
    return;
  }
  log.warn("another Service has the address that this one requests", { service, holder, frontEnd });
  const why = "that Service is older, or has the address as its cluster IP";
  tell("ExternalAddressInUse", `${frontEnd} belongs to Service ${holder} (${why}): that Service gets the connections`);
}
