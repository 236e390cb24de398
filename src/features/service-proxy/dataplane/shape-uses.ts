import type { ObservedFrontEnd } from "../plan/index.ts";
import { parseShape, type RuleOptions } from "../rules/index.ts";
import { shapesOf } from "./table-rules.ts";

/**
 * Time for which a chain must have been unused before it is deleted, in milliseconds. Numbers of endpoints go to and fro while pods are
 * replaced, and making a chain costs three transactions.
 */
export const UNUSED_MS = 60_000;

/** The chains of shapes that the verdicts of a table need, and since when the others are unused. */
export class ShapeUses {
  /** Number of verdicts that lead to each chain. */
  readonly #verdicts = new Map<string, number>();
  /** Unused chains, with the monotonic time in milliseconds at which each was first seen unused. */
  readonly #unusedSince = new Map<string, number>();
  /** The set of chains that verdicts lead to has changed since the last {@link ShapeUses.review}. */
  #isChanged = true;

  /** `frontEnds`: the front ends that the kernel holds. */
  constructor(frontEnds: Iterable<ObservedFrontEnd> = []) {
    for (const frontEnd of frontEnds) this.replace(undefined, frontEnd);
  }

  /** Records that the kernel holds `after` in the place of `before`. */
  replace(before: ObservedFrontEnd | undefined, after: ObservedFrontEnd | undefined): void {
    // Chains that both lead to must not pass through 0: the chains would be computed again after each sync.
    for (const chain of chainsOf(after)) this.#count(chain, 1);
    for (const chain of chainsOf(before)) this.#count(chain, -1);
  }

  /** Finds the unused chains among `chains`, those of the table. To be called after each sync. `now`: monotonic, milliseconds. */
  review(chains: ReadonlySet<string>, options: RuleOptions, now: number): void {
    if (!this.#isChanged) return;
    this.#isChanged = false;
    const needed = new Set(shapesOf(this.#verdicts.keys(), options).map(({ name }) => name));
    for (const name of this.#unusedSince.keys())
      if (needed.has(name) || !chains.has(name)) this.#unusedSince.delete(name);
    for (const name of chains)
      if (parseShape(name) !== undefined && !needed.has(name) && !this.#unusedSince.has(name))
        this.#unusedSince.set(name, now);
  }

  /** Chains that were unused for {@link UNUSED_MS} at the last review. `now`: monotonic, milliseconds. */
  expired(now: number): readonly string[] {
    return [...this.#unusedSince].filter(([, since]) => now - since >= UNUSED_MS).map(([name]) => name);
  }

  /** Records that these chains were deleted. */
  deleted(names: Iterable<string>): void {
    for (const name of names) this.#unusedSince.delete(name);
  }

  /** Monotonic time in milliseconds at which the next unused chain expires; `undefined`: all chains are used. */
  get nextExpiry(): number | undefined {
    if (this.#unusedSince.size === 0) return undefined;
    return Math.min(...this.#unusedSince.values()) + UNUSED_MS;
  }

  #count(chain: string, change: 1 | -1): void {
    const before = this.#verdicts.get(chain) ?? 0;
    const after = before + change;
    if (after === 0) this.#verdicts.delete(chain);
    else this.#verdicts.set(chain, after);
    if (before === 0 || after === 0) this.#isChanged = true;
  }
}

function chainsOf(frontEnd: ObservedFrontEnd | undefined): readonly string[] {
  const verdicts = [frontEnd?.verdict, frontEnd?.localVerdict];
  return verdicts.flatMap((verdict) => (verdict !== undefined && "chain" in verdict ? [verdict.chain] : []));
}
