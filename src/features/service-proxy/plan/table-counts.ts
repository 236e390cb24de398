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

/** Counts the objects of these front ends. Pure. */
export function countTable(frontEnds: Iterable<ObservedFrontEnd>): TableCounts {
  const counts = { frontEnds: 0, endpoints: 0, noLocalInternal: 0 };
  // A service port counts once, though it may have several external front ends.
  const external = new Set<string>();
  for (const { verdict, slots, localSlots, service } of frontEnds) {
    counts.frontEnds += 1;
    counts.endpoints += slots.length + localSlots.length;
    if (verdict?.kind === "drop") counts.noLocalInternal += 1;
    if (verdict !== undefined && "chain" in verdict && verdict.chain.endsWith("extl-0")) external.add(service);
  }
  return { ...counts, noLocalExternal: external.size };
}
