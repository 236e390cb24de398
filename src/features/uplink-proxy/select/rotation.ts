import { keepNewest } from "#base/collections";

/** Destinations whose scores are kept, over all tiers; the least recently used is dropped first. */
const MAX_DESTINATIONS = 4096;

/** One of the uplinks of equal cost. */
export interface WeightedUplink {
  readonly name: string;
  readonly weight: number;
}

type Scores = Map<string, number>;

/**
 * Rotates among uplinks of the same cost: smooth weighted round robin for each destination, so that two kinds of request that
 * alternate are not pinned to one uplink each; equal scores go to the uplink with fewer tunnels, then to the one that is next
 * among all destinations.
 */
export class Rotation {
  readonly #byDestination = new Map<string, Scores>();
  readonly #overall: Scores = new Map();
  readonly #active = new Map<string, number>();

  /** The uplinks in the order to be tried. Changes no score. */
  order<T extends WeightedUplink>(destination: string, uplinks: readonly T[]): T[] {
    if (uplinks.length < 2) return [...uplinks];
    const own = this.#byDestination.get(destination);
    const score = (scores: Scores | undefined, { name, weight }: T): number => (scores?.get(name) ?? 0) + weight;
    const load = ({ name, weight }: T): number => (this.#active.get(name) ?? 0) / weight;
    return [...uplinks].sort(
      (a, b) => score(own, b) - score(own, a) || load(a) - load(b) || score(this.#overall, b) - score(this.#overall, a),
    );
  }

  /** A tunnel begins over `chosen`: updates the scores. */
  take(destination: string, uplinks: readonly WeightedUplink[], chosen: string): void {
    if (uplinks.length < 2) return;
    const own = this.#byDestination.get(destination) ?? new Map<string, number>();
    this.#byDestination.delete(destination);
    this.#byDestination.set(destination, own);
    shift(own, uplinks, chosen, 1);
    shift(this.#overall, uplinks, chosen, 1);
    keepNewest(this.#byDestination, MAX_DESTINATIONS);
  }

  /** Undoes {@link take}: the tunnel did not start. */
  giveBack(destination: string, uplinks: readonly WeightedUplink[], chosen: string): void {
    if (uplinks.length < 2) return;
    const own = this.#byDestination.get(destination);
    if (own !== undefined) shift(own, uplinks, chosen, -1);
    shift(this.#overall, uplinks, chosen, -1);
  }

  /**
   * Another uplink than the one of {@link take} was faster, or connected alone. The scores stay within the sum of the weights: turns that
   * an uplink has missed for long are not made up for.
   */
  move(destination: string, uplinks: readonly WeightedUplink[], from: string, to: string): void {
    this.giveBack(destination, uplinks, from);
    this.take(destination, uplinks, to);
    for (const scores of [this.#overall, this.#byDestination.get(destination)])
      if (scores !== undefined) clamp(scores, uplinks);
  }

  /** Tunnels that run over an uplink. */
  active(name: string): number {
    return this.#active.get(name) ?? 0;
  }

  started(name: string): void {
    this.#active.set(name, this.active(name) + 1);
  }

  ended(name: string): void {
    const left = this.active(name) - 1;
    if (left > 0) this.#active.set(name, left);
    else this.#active.delete(name);
  }
}

function shift(scores: Scores, uplinks: readonly WeightedUplink[], chosen: string, sign: 1 | -1): void {
  let total = 0;
  for (const { name, weight } of uplinks) {
    total += weight;
    scores.set(name, (scores.get(name) ?? 0) + sign * weight);
  }
  scores.set(chosen, (scores.get(chosen) ?? 0) - sign * total);
}

function clamp(scores: Scores, uplinks: readonly WeightedUplink[]): void {
  const total = uplinks.reduce((sum, { weight }) => sum + weight, 0);
  for (const { name } of uplinks) scores.set(name, Math.max(-total, Math.min(total, scores.get(name) ?? 0)));
}
