import { repeat } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { DataPlane } from "../dataplane/index.ts";
import { AFFINITY_ENTRIES } from "../rules/index.ts";
import type { FamilyProxy } from "./family-proxy.ts";

/** Time between two counts, in milliseconds. A full map takes a third of a second of the processor, in slices. */
export const COUNT_MS = 60_000;
/** Shares of the map: from the first one on it is nearly full, and below the second one no longer. */
const NEARLY_FULL = 0.9;
const EMPTIER = 0.8;

export interface AffinityFillDeps {
  readonly families: readonly (Pick<FamilyProxy, "family" | "isBusy"> & {
    readonly plane: Pick<DataPlane, "countAffinity">;
  })[];
  readonly onCount: (family: IpFamily, entries: number) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Counts the clients that session affinity remembers, beside the syncs. One map of each family serves all Services, and where it is full the kernel
 * says nothing: new clients are balanced with each connection (docs/spec/service-proxy.md#K7).
 */
export class AffinityFill {
  readonly #deps: AffinityFillDeps;
  /** Families whose map is reported as nearly full. */
  readonly #reported = new Set<IpFamily>();

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

  async #countAll(signal: AbortSignal): Promise<void> {
    for (const { family, isBusy, plane } of this.#deps.families) {
      const entries = isBusy ? undefined : await plane.countAffinity({ signal });
      if (entries !== undefined) this.#counted(family, entries);
    }
  }

  #counted(family: IpFamily, entries: number): void {
    this.#deps.onCount(family, entries);
    if (entries < EMPTIER * AFFINITY_ENTRIES) this.#reported.delete(family);
    if (entries < NEARLY_FULL * AFFINITY_ENTRIES || this.#reported.has(family)) return;
    this.#reported.add(family);
    this.#deps.log.warn(
      "the map of session affinity is nearly full; where it is full, new clients get another endpoint with each connection",
      {
        family,
        entries,
        max: AFFINITY_ENTRIES,
        fix: "shorten sessionAffinityConfig.clientIP.timeoutSeconds of Services with many clients, or look for a flood of forged sources",
      },
    );
  }
}
