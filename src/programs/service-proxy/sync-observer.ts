import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type EventSink,
  type HealthEvent,
  type NodeHealth,
  type ServicePorts,
  type SyncMetrics,
  serviceHealth,
} from "#features/service-health";
import { countTable, type FamilyProxy, type LostClaim, type SyncObserver } from "#features/service-proxy";
import { isKernelError } from "#kernel/errors";
import type { Readiness } from "./readiness.ts";
import type { SmallHeap } from "./small-heap.ts";

/** Objects of the tables are counted at most so often, milliseconds. */
const COUNT_MS = 5000;

/** Who hears of syncs. */
export interface SyncListeners {
  readonly syncs: SyncMetrics;
  readonly health: NodeHealth;
  readonly readiness: Pick<Readiness, "synced" | "failed">;
  readonly heap: Pick<SmallHeap, "synced">;
  readonly ports: ServicePorts;
  readonly onEvent: EventSink;
  /** A transaction was refused because the kernel does not hold what we left there. */
  readonly onDisagreement: () => void;
  readonly log: Logger;
  readonly proxyOf: (family: IpFamily) => FamilyProxy | undefined;
}

/** Health, health ports, metrics and people hear of syncs. */
export function syncObserver(at: SyncListeners): SyncObserver {
  const { syncs, health, ports, log, proxyOf } = at;
  const countedAt = new Map<IpFamily, number>();
  return {
    queued: (family) => {
      health.queued(family);
      syncs.queued(family);
    },
    started: (family) => {
      health.syncing(family);
      syncs.syncing(family);
    },
    synced: (family, report) => {
      health.synced(family);
      at.readiness.synced(family);
      at.heap.synced(family);
      syncs.synced(family, report);
      log.debug("synced", { family, ...report });
      const proxy = proxyOf(family);
      if (proxy === undefined) return;
      const { tracker, plane } = proxy;
      ports.setServices(
        family,
        [...tracker.healthChecked].flatMap((service) => serviceHealth(tracker.ports(service)) ?? []),
      );
      const now = performance.now();
      if (now - (countedAt.get(family) ?? Number.NEGATIVE_INFINITY) < COUNT_MS) return;
      countedAt.set(family, now);
      const counts = countTable(plane.frontEnds.values());
      syncs.noLocalEndpoints(family, "internal", counts.noLocalInternal);
      syncs.noLocalEndpoints(family, "external", counts.noLocalExternal);
      syncs.objects(family, "frontend", counts.frontEnds);
      syncs.objects(family, "endpoint", counts.endpoints);
    },
    failed: (family, error) => {
      health.failed(family, error);
      at.readiness.failed(family, error);
      syncs.failed(family);
      if (isKernelError(error, "already-exists", "not-found")) at.onDisagreement();
    },
    forgotten: (family, flows, durationMs) => syncs.forgotten(family, flows, durationMs),
    lost: (_family, claim) => tellLost(claim, at),
    losing: (family, claims) => syncs.losing(family, claims),
  };
}

/** Its owner would look for the fault in the Service that does not get what it asks for. */
function tellLost(
  { service, holder, owner, frontEnd }: LostClaim,
  { log, onEvent }: Pick<SyncListeners, "log" | "onEvent">,
): void {
  const [namespace = "", name = ""] = service.split("/");
  const tell = (reason: HealthEvent["reason"], note: string): void =>
    onEvent({ about: { namespace, name }, type: "Warning", reason, note });
  if (owner !== undefined) {
    const fix = "a Service may have addresses that are nobody else's; for those of nodes there are NodePorts";
    log.warn("a Service asks for an address that no Service can have", { service, frontEnd, owner, fix });
    tell("ExternalAddressRefused", `${frontEnd} is not for a Service: the address belongs to ${owner}`);
    return;
  }
  log.warn("another Service has what this one asks for", { service, holder, frontEnd });
  const why = "by age, or because it is its cluster IP";
  tell(
    "ExternalAddressInUse",
    `${frontEnd} belongs to Service ${holder} (${why}): what comes in there goes to that one`,
  );
}
