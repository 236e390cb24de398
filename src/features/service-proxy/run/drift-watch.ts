import type { Clock } from "#base/clock";
import type { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { isKernelError } from "#kernel/errors";
import type { NftWriters } from "#kernel/nft-elements";
import type { DataPlane, GenerationTracker } from "../dataplane/index.ts";
import { ConflictBackoff } from "./conflict-backoff.ts";
import type { FamilyProxy } from "./family-proxy.ts";

/** Interval of polls for changes by other programs, milliseconds (docs/spec/service-proxy.md#2.9). */
export const POLL_MS = 500;
/** Maximum of programs that a log line names. */
const MAX_NAMES = 10;
/** Longest pause between two full comparisons, in milliseconds; each one that finds no drift makes the pause longer. */
const MAX_PAUSE_MS = 60_000;

/** Result of one poll of the families. */
interface Poll {
  /** Number of families that other programs had changed. */
  found: number;
}

interface Repair {
  readonly family: FamilyProxy["family"];
  /** Chains, rules or sets were changed. */
  readonly isDamaged: boolean;
  /** Number of elements that differed. */
  readonly changes: number;
}

/** The part of a family's proxy that is watched. */
export type WatchedFamily = Pick<FamilyProxy, "family" | "isBusy" | "repair"> & {
  readonly plane: Pick<DataPlane, "isDamaged" | "isBroken">;
};

export interface DriftWatchDeps {
  readonly generations: Pick<GenerationTracker, "hasForeignChanges" | "settle">;
  readonly families: readonly WatchedFamily[];
  /** A change by another program was repaired. */
  readonly onRepaired?: () => void;
  /** A conflict with another program has begun, or is over. */
  readonly onContested?: (isOn: boolean) => void;
  /** Watches which processes change nftables, for the log. It is open only while other programs change our tables. */
  readonly openWriters?: () => NftWriters;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Repairs changes of other programs to our tables. nftables counts transactions, so a poll needs only one short request. Our table is
 * listed only if another program made a transaction. While other programs change only their own tables, our table is listed less and less
 * often; a poll finds missing chains, sets and rules without a listing. A program that keeps changing our tables is logged once, by name,
 * and repairs slow down ({@link ConflictBackoff}). A table that does not translate packets any more is always repaired at once.
 */
export class DriftWatch {
  readonly #deps: DriftWatchDeps;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #conflict: ConflictBackoff;
  #isReported = false;
  /** The last poll failed. */
  #isFailing = false;
  #pauseMs = 0;
  #nextAt = 0;
  /** Families whose elements other programs may have changed, though their changes are acknowledged: they are compared when it is due. */
  readonly #owed = new Set<WatchedFamily>();
  #writers: NftWriters | undefined;
  /** `name (pid)` of the processes that changed nftables since the first disturbance. */
  readonly #seen = new Set<string>();

  constructor(deps: DriftWatchDeps) {
    this.#deps = deps;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#conflict = new ConflictBackoff(this.#clock);
  }

  /** To be called when the kernel refused one of our transactions because its content differs from our last write. */
  refused(): void {
    this.#conflict.disturbed();
    this.#report();
  }

  /** Runs until the signal aborts. A poll that the kernel does not answer is made again. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const options = { signal, clock: this.#clock, everyMs: POLL_MS, startsIdle: true };
    try {
      await repeat(async () => this.#pollWell(), { ...options, onFailure: (error) => this.#failed(error) });
    } finally {
      this.#writers?.[Symbol.dispose]();
    }
  }

  /**
   * A listing fails if the kernel's objects change during each of its tries, as other programs' bursts of transactions do, or for
   * want of memory. Changes are then still not settled, so that the next poll finds them.
   */
  #failed(error: ExpectedError): void {
    if (!this.#isFailing)
      this.#log.warn("cannot look for changes by other programs; trying again", { error: error.message });
    this.#isFailing = true;
  }

  #pollWell(): void {
    this.#poll();
    this.#isFailing = false;
  }

  #poll(): void {
    const { generations, families } = this.#deps;
    this.#conflict.update();
    this.#followWriters();
    this.#report();
    if (families.some(({ isBusy }) => isBusy)) return;
    const isChanged = generations.hasForeignChanges;
    if (!isChanged && this.#owed.size === 0) return;
    const isDue = this.#clock.monotonic() >= this.#nextAt;
    const damaged = isChanged ? families.filter(({ plane }) => plane.isDamaged()) : [];
    const urgent = this.#conflict.isOn ? damaged.filter(({ plane }) => plane.isBroken()) : damaged;
    const suspects = !isDue ? urgent : isChanged ? families : [...this.#owed];
    if (suspects.length === 0) return;
    // Damage that is not repaired now stays unacknowledged, so that rules which another program changed are not sealed.
    if (damaged.every((one) => suspects.includes(one))) {
      generations.settle();
      if (isChanged) for (const family of families) this.#owed.add(family);
    }
    const poll: Poll = { found: 0 };
    for (const family of suspects) {
      this.#owed.delete(family);
      const isDamaged = damaged.includes(family);
      family.repair((changes) => this.#repaired({ family: family.family, isDamaged, changes }, poll));
    }
  }

  /** Logs drift. If there was no drift, delays the next full comparison. */
  #repaired(repair: Repair, poll: Poll): void {
    if (repair.changes > 0 || repair.isDamaged) {
      this.#pauseMs = 0;
      // Changes to both families at once are one disturbance.
      if (poll.found === 0) this.#conflict.disturbed();
      poll.found += 1;
      if (!this.#conflict.isOn)
        this.#log.warn("another program changed the proxy's nftables table; the changes are repaired", { ...repair });
      this.#deps.onRepaired?.();
    } else if (poll.found === 0) {
      this.#pauseMs = Math.min(MAX_PAUSE_MS, Math.max(1000, this.#pauseMs * 2));
    }
    this.#report();
    this.#nextAt = this.#clock.monotonic() + Math.max(this.#pauseMs, this.#conflict.pauseMs);
  }

  /** Follows writers from the first disturbance until there has been none for a while. */
  #followWriters(): void {
    if (!this.#conflict.isDisturbed) {
      this.#writers?.[Symbol.dispose]();
      this.#writers = undefined;
      this.#seen.clear();
      return;
    }
    try {
      this.#writers ??= this.#deps.openWriters?.();
      for (const { name, pid } of this.#writers?.take() ?? []) {
        if (this.#seen.size < MAX_NAMES) this.#seen.add(`${name} (${pid})`);
      }
    } catch (error) {
      if (!isKernelError(error)) throw error;
      this.#log.debug("cannot follow which programs change nftables", { error: error.message });
    }
  }

  /** Logs the begin and the end of a conflict, once each. */
  #report(): void {
    const { isOn } = this.#conflict;
    if (isOn === this.#isReported) return;
    this.#isReported = isOn;
    this.#deps.onContested?.(isOn);
    if (isOn) {
      this.#log.error(
        "another program repeatedly changes the proxy's nftables table; Services may fail until one of the two programs is stopped",
        {
          seen: [...this.#seen].join(", ") || "unknown",
          fix: "check whether kube-proxy, or a second service-proxy with the same --table-name, runs on this node",
        },
      );
    } else this.#log.info("no other program changes the proxy's nftables table any more");
  }
}
