import type { ObservedFrontEnd } from "./front-end.ts";

/** Number of objects in a table. */
export interface TableCounts {
  readonly frontEnds: number;
  /** Slots of all front ends. */
  readonly endpoints: number;
  /** Service ports of policy Local that have endpoints, but none on this node. */
  readonly noLocalInternal: number;
  readonly noLocalExternal: number;
}

/** Counts the objects of a table's front ends, as these change. */
export class TableTally {
  #frontEnds = 0;
  #endpoints = 0;
  #noLocalInternal = 0;
  /** Service ports that drop external packets, with the number of their front ends: a service port may have several. */
  readonly #noLocalExternal = new Map<string, number>();

  constructor(frontEnds: Iterable<ObservedFrontEnd> = []) {
    for (const frontEnd of frontEnds) this.replace(undefined, frontEnd);
  }

  /** Records that the table holds `after` in the place of `before`. */
  replace(before: ObservedFrontEnd | undefined, after: ObservedFrontEnd | undefined): void {
    if (before !== undefined) this.#count(before, -1);
    if (after !== undefined) this.#count(after, 1);
  }

  get counts(): TableCounts {
    return {
      frontEnds: this.#frontEnds,
      endpoints: this.#endpoints,
      noLocalInternal: this.#noLocalInternal,
      noLocalExternal: this.#noLocalExternal.size,
    };
  }

  #count({ verdict, slots, localSlots, service }: ObservedFrontEnd, change: 1 | -1): void {
    this.#frontEnds += change;
    this.#endpoints += change * (slots.length + localSlots.length);
    if (verdict?.kind === "drop") this.#noLocalInternal += change;
    if (verdict === undefined || !("chain" in verdict) || !verdict.chain.endsWith("extl-0")) return;
    const count = (this.#noLocalExternal.get(service) ?? 0) + change;
    if (count > 0) this.#noLocalExternal.set(service, count);
    else this.#noLocalExternal.delete(service);
  }
}
