import { sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import type { Ledger } from "../dataplane/index.ts";
import type { FamilyProxy } from "./family-proxy.ts";

/** So often somebody else's changes are looked for, milliseconds (spec service-proxy 2.9: repaired within a second). */
const LOOK_MS = 500;
/** Where looking found nothing of ours changed, the next look at all of it is later, up to this, milliseconds. */
const MAX_PAUSE_MS = 60_000;

export interface DriftWatchDeps {
  readonly ledger: Ledger;
  readonly families: readonly FamilyProxy[];
  /** Something of ours differed, and was put right. */
  readonly onRepaired?: () => void;
  readonly log?: Logger;
  readonly clock?: Clock;
}

/**
 * Repairs what others do to our tables. nftables counts transactions, so a look costs one short request; only when somebody else's
 * was among them is our table listed. Programs that change their own tables all the time make that rare by and by, except for a
 * table that is gone or was emptied, which shows without listing elements.
 */
export class DriftWatch {
  readonly #deps: DriftWatchDeps;
  readonly #clock: Clock;
  readonly #log: Logger;
  #pauseMs = 0;
  #nextAt = 0;

  constructor(deps: DriftWatchDeps) {
    this.#deps = deps;
    this.#clock = deps.clock ?? systemClock;
    this.#log = deps.log ?? nullLogger;
  }

  /** So many elements differed: what was drift is told, what was none is looked at more rarely. */
  #repaired(changes: number): void {
    if (changes === 0) {
      this.#pauseMs = Math.min(MAX_PAUSE_MS, Math.max(1000, this.#pauseMs * 2));
    } else {
      this.#pauseMs = 0;
      this.#log.warn("somebody else changed our nftables; repaired", { changes });
      this.#deps.onRepaired?.();
    }
    this.#nextAt = this.#clock.monotonic() + this.#pauseMs;
  }

  /** Until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    while (!signal.aborted) {
      await sleep(LOOK_MS, { signal, clock: this.#clock }).catch(() => undefined);
      if (!signal.aborted) this.#look();
    }
  }

  #look(): void {
    const { ledger, families } = this.#deps;
    if (families.some(({ isBusy }) => isBusy) || !ledger.isTouched) return;
    const gone = families.filter(({ plane }) => plane.isDamaged());
    if (gone.length > 0)
      this.#log.warn("somebody removed nftables of ours", { families: gone.map(({ family }) => family) });
    const suspects = this.#clock.monotonic() >= this.#nextAt ? families : gone;
    if (suspects.length === 0) return;
    ledger.settle();
    for (const family of suspects) family.repair((changes) => this.#repaired(changes));
  }
}
