import type { Clock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { type PassResult, repeat } from "#base/reconcile";
import type { DataPlane } from "../dataplane/index.ts";
import type { FamilyProxy } from "./family-proxy.ts";

/** Time between two counts while no map is above a half, in milliseconds. Half a map takes an eighth of a second of the processor, in slices. */
export const COUNT_MS = 5000;
/** The same while one is: at each count Services above their share lose their oldest clients. */
export const CROWDED_COUNT_MS = 1000;
/** Shares of the map: from the first one on it is nearly full, and below the second one no longer. */
const HALF = 0.5;
const NEARLY_FULL = 0.9;
const EMPTIER = 0.8;

export interface AffinityFillDeps {
  readonly families: readonly (Pick<FamilyProxy, "family" | "isBusy"> & {
    readonly plane: Pick<DataPlane, "countAffinity" | "trimAffinity" | "affinityEntries">;
  })[];
  readonly onCount: (family: IpFamily, entries: number) => void;
  /** Called with the number of clients that Services above their share have lost. */
  readonly onTrim: (family: IpFamily, clients: number) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Counts the clients that session affinity remembers, beside the syncs. One map of each family serves all Services, and where it is full the kernel
 * says nothing: new clients are balanced with each connection (docs/spec/service-proxy.md#K7). While a map is more than half full, Services above their
 * share lose their oldest clients, so that no flood of forged sources to one Service takes affinity from others.
 */
export class AffinityFill {
  readonly #deps: AffinityFillDeps;
  /** Families whose map is reported as nearly full. */
  readonly #reported = new Set<IpFamily>();
  /** Families whose map was above a half at the last count. */
  readonly #crowded = new Set<IpFamily>();
  /** Services that have lost clients since their family's map is above a half: each is logged once. */
  readonly #trimmed = new Map<IpFamily, Set<string>>();

  constructor(deps: AffinityFillDeps) {
    this.#deps = deps;
  }

  /** Counts until the signal aborts. Rejects only because of a bug. */
  run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { log, clock } = this.#deps;
    return repeat(() => this.#countAll(signal), {
      signal,
      everyMs: COUNT_MS,
      clock,
      onFailure: (error) => log.debug("cannot count the entries of session affinity", { error: error.message }),
    });
  }

  async #countAll(signal: AbortSignal): Promise<PassResult> {
    for (const { family, isBusy, plane } of this.#deps.families) {
      const entries = isBusy ? undefined : await plane.countAffinity({ signal });
      if (entries === undefined) continue;
      const max = plane.affinityEntries;
      this.#counted(family, entries, max);
      if (entries > HALF * max) {
        this.#crowded.add(family);
        this.#trimmedNow(family, await plane.trimAffinity({ signal }));
      } else {
        this.#crowded.delete(family);
        this.#trimmed.delete(family);
      }
    }
    return { againMs: this.#crowded.size === 0 ? COUNT_MS : CROWDED_COUNT_MS };
  }

  #trimmedNow(family: IpFamily, services: Awaited<ReturnType<DataPlane["trimAffinity"]>>): void {
    if (services.length === 0) return;
    this.#deps.onTrim(
      family,
      services.reduce((sum, { removed }) => sum + removed, 0),
    );
    const known = this.#trimmed.get(family) ?? new Set();
    this.#trimmed.set(family, known);
    for (const { service, removed } of services) {
      if (known.has(service)) continue;
      known.add(service);
      this.#deps.log.warn(
        "a Service has more clients than its share of session affinity; its oldest ones are forgotten",
        {
          family,
          service,
          removed,
          fix: "look for a flood of forged sources, or shorten sessionAffinityConfig.clientIP.timeoutSeconds of this Service",
        },
      );
    }
  }

  #counted(family: IpFamily, entries: number, max: number): void {
    this.#deps.onCount(family, entries);
    if (entries < EMPTIER * max) this.#reported.delete(family);
    if (entries < NEARLY_FULL * max || this.#reported.has(family)) return;
    this.#reported.add(family);
    this.#deps.log.warn(
      "the map of session affinity is nearly full; where it is full, new clients get another endpoint with each connection",
      {
        family,
        entries,
        max,
        fix: "shorten sessionAffinityConfig.clientIP.timeoutSeconds of Services with many clients, or look for a flood of forged sources",
      },
    );
  }
}
