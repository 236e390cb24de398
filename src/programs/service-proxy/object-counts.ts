import type { Clock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import type { SyncMetrics } from "#features/service-health";
import { countTable, type FamilyProxy } from "#features/service-proxy";

/** Shortest time between two counts of a table's objects, in milliseconds. */
export const COUNT_MS = 5000;

/** The part of a family's proxy that is counted. */
export type CountedProxy = Pick<FamilyProxy, "isBusy"> & {
  readonly plane: Pick<FamilyProxy["plane"], "isKnown" | "frontEnds">;
};

/** Sets the metrics that are numbers of objects in the tables: after a sync, or {@link COUNT_MS} after the count before. */
export class ObjectCounts {
  readonly #syncs: Pick<SyncMetrics, "noLocalEndpoints" | "objects">;
  readonly #clock: Clock;
  readonly #proxyOf: (family: IpFamily) => CountedProxy | undefined;
  readonly #countedAt = new Map<IpFamily, number>();
  /** Families whose count waits. */
  readonly #waiting = new Set<IpFamily>();

  constructor(deps: {
    readonly syncs: Pick<SyncMetrics, "noLocalEndpoints" | "objects">;
    readonly clock: Clock;
    readonly proxyOf: (family: IpFamily) => CountedProxy | undefined;
  }) {
    this.#syncs = deps.syncs;
    this.#clock = deps.clock;
    this.#proxyOf = deps.proxyOf;
  }

  /** To be called after each successful sync. */
  synced(family: IpFamily): void {
    const proxy = this.#proxyOf(family);
    const waitMs = (this.#countedAt.get(family) ?? Number.NEGATIVE_INFINITY) + COUNT_MS - this.#clock.monotonic();
    if (waitMs <= 0) {
      if (proxy?.plane.isKnown === true) this.#count(family, proxy);
      return;
    }
    if (this.#waiting.has(family)) return;
    this.#waiting.add(family);
    const late = (): void => {
      this.#waiting.delete(family);
      const now = this.#proxyOf(family);
      // During a sync, and after one that failed, the content is not known. The next successful sync is counted.
      if (now?.plane.isKnown === true && !now.isBusy) this.#count(family, now);
    };
    this.#clock.after(waitMs, late, { unref: true });
  }

  #count(family: IpFamily, { plane }: CountedProxy): void {
    this.#countedAt.set(family, this.#clock.monotonic());
    const counts = countTable(plane.frontEnds.values());
    this.#syncs.noLocalEndpoints(family, "internal", counts.noLocalInternal);
    this.#syncs.noLocalEndpoints(family, "external", counts.noLocalExternal);
    this.#syncs.objects(family, "frontend", counts.frontEnds);
    this.#syncs.objects(family, "endpoint", counts.endpoints);
  }
}
