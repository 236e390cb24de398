import { pause } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { NftWriters } from "#kernel/nft-elements";
import type { DataPlane, GenerationTracker } from "../dataplane/index.ts";
import { ConflictBackoff } from "./conflict-backoff.ts";
import type { FamilyProxy } from "./family-proxy.ts";

/** So often somebody else's changes are looked for, milliseconds (docs/spec/service-proxy.md#2.9: repaired within a second). */
export const POLL_MS = 500;
/** So many programs are named. */
const MAX_NAMES = 10;
/** Where looking found nothing of ours changed, the next look at all of it is later, up to this, milliseconds. */
const MAX_PAUSE_MS = 60_000;

/** What came of one look at the families. */
interface Poll {
  /** Families that were found changed. */
  found: number;
}

interface Repair {
  readonly family: FamilyProxy["family"];
  /** Chains, rules or sets were touched. */
  readonly isDamaged: boolean;
  /** Elements that differed. */
  readonly changes: number;
}

/** What is watched of a family. */
export type WatchedFamily = Pick<FamilyProxy, "family" | "isBusy" | "repair"> & {
  readonly plane: Pick<DataPlane, "isDamaged" | "isBroken">;
};

export interface DriftWatchDeps {
  readonly generations: Pick<GenerationTracker, "hasForeignChanges" | "settle">;
  readonly families: readonly WatchedFamily[];
  /** Something of ours differed, and was put right. */
  readonly onRepaired?: () => void;
  /** Another program begins, or has ceased, to work on our tables all the time. */
  readonly onContested?: (isOn: boolean) => void;
  /** Follows who changes nftables, for the log; asked for while somebody does. */
  readonly openWriters?: () => NftWriters;
  readonly log?: Logger;
  readonly clock?: Clock;
}

/**
 * Repairs what others do to our tables. nftables counts transactions, so a look costs one short request; only when somebody else's
 * was among them is our table listed. Programs that change their own tables all the time make that rare by and by, except for a
 * table that is gone or was emptied, which shows without listing elements. One that changes ours all the time is told of once, by
 * name, and repaired after at more and more leisure; but what packets need is put back at once, always.
 */
export class DriftWatch {
  readonly #deps: DriftWatchDeps;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #conflict: ConflictBackoff;
  #isReported = false;
  #pauseMs = 0;
  #nextAt = 0;
  #writers: NftWriters | undefined;
  /** `name (pid)`, of those that were at work since the first disturbance. */
  readonly #seen = new Set<string>();

  constructor(deps: DriftWatchDeps) {
    this.#deps = deps;
    this.#clock = deps.clock ?? systemClock;
    this.#log = deps.log ?? nullLogger;
    this.#conflict = new ConflictBackoff(this.#clock);
  }

  /** A transaction of ours was refused because the kernel does not hold what we left there. */
  refused(): void {
    this.#conflict.disturbed();
    this.#report();
  }

  /** Until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    try {
      while (!signal.aborted) {
        await pause(POLL_MS, { signal, clock: this.#clock });
        if (!signal.aborted) this.#poll();
      }
    } finally {
      this.#writers?.[Symbol.dispose]();
    }
  }

  #poll(): void {
    const { generations, families } = this.#deps;
    this.#conflict.update();
    this.#followWriters();
    this.#report();
    if (families.some(({ isBusy }) => isBusy) || !generations.hasForeignChanges) return;
    const isDue = this.#clock.monotonic() >= this.#nextAt;
    const damaged = families.filter(({ plane }) => plane.isDamaged());
    const urgent = this.#conflict.isOn ? damaged.filter(({ plane }) => plane.isBroken()) : damaged;
    const suspects = isDue ? families : urgent;
    if (suspects.length === 0) return;
    generations.settle();
    const poll: Poll = { found: 0 };
    for (const family of suspects) {
      const isDamaged = damaged.includes(family);
      family.repair((changes) => this.#repaired({ family: family.family, isDamaged, changes }, poll));
    }
  }

  /** What was drift is told, what was none is looked at more rarely. */
  #repaired(repair: Repair, poll: Poll): void {
    if (repair.changes > 0 || repair.isDamaged) {
      this.#pauseMs = 0;
      // What one of theirs did to both families is one disturbance.
      if (poll.found === 0) this.#conflict.disturbed();
      poll.found += 1;
      if (!this.#conflict.isOn) this.#log.warn("somebody else changed our nftables; repaired", { ...repair });
      this.#deps.onRepaired?.();
    } else if (poll.found === 0) {
      this.#pauseMs = Math.min(MAX_PAUSE_MS, Math.max(1000, this.#pauseMs * 2));
    }
    this.#report();
    this.#nextAt = this.#clock.monotonic() + Math.max(this.#pauseMs, this.#conflict.pauseMs);
  }

  /** From the first disturbance until there has been none for a while. */
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
      this.#log.debug("who changes nftables cannot be followed", { error: error.message });
    }
  }

  /** Once when it begins, and once when it is over. */
  #report(): void {
    const { isOn } = this.#conflict;
    if (isOn === this.#isReported) return;
    this.#isReported = isOn;
    this.#deps.onContested?.(isOn);
    if (isOn) {
      this.#log.error("another program keeps changing our nftables; Services may fail until one of the two ends", {
        seen: [...this.#seen].join(", ") || "nobody by name",
        fix: "look for kube-proxy, or a second service-proxy of the same --table-name, on this node",
      });
    } else this.#log.info("nobody else changes our nftables any more");
  }
}
