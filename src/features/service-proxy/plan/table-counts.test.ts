import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ObservedFrontEnd } from "./front-end.ts";
import { type TableCounts, TableTally } from "./table-counts.ts";

const VERDICTS = [
  undefined,
  { kind: "drop" },
  { kind: "goto", chain: "lb-2" },
  { kind: "goto", chain: "np-extl-0" },
] as const;

function frontEnd(service: string, verdict: ObservedFrontEnd["verdict"], endpoints: number): ObservedFrontEnd {
  const slots = Array.from({ length: endpoints }, () => "e");
  const rest = { localVerdict: undefined, noEndpoints: false, affinitySeconds: 0, sourceRanges: undefined };
  return { key: "k", isNodePort: false, service, verdict, slots, localSlots: [], ...rest };
}

/** The counts of a table that is read as a whole. */
function counted(frontEnds: readonly ObservedFrontEnd[]): TableCounts {
  const external = frontEnds.filter(({ verdict }) => verdict === VERDICTS[3]);
  return {
    frontEnds: frontEnds.length,
    endpoints: frontEnds.reduce((sum, { slots }) => sum + slots.length, 0),
    noLocalInternal: frontEnds.filter(({ verdict }) => verdict === VERDICTS[1]).length,
    noLocalExternal: new Set(external.map(({ service }) => service)).size,
  };
}

test("TableTally: after any changes it has the counts of the table as a whole", () => {
  const one = fc.record({
    id: fc.nat(8),
    service: fc.constantFrom("a", "b"),
    verdict: fc.constantFrom(...VERDICTS),
    endpoints: fc.nat(3),
    isGone: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(one, { maxLength: 40 }), (changes) => {
      const table = new Map<number, ObservedFrontEnd>();
      const tally = new TableTally();
      for (const { id, service, verdict, endpoints, isGone } of changes) {
        const after = isGone ? undefined : frontEnd(service, verdict, endpoints);
        tally.replace(table.get(id), after);
        if (after === undefined) table.delete(id);
        else table.set(id, after);
        assert.deepEqual(tally.counts, counted([...table.values()]));
      }
      assert.deepEqual(new TableTally(table.values()).counts, tally.counts);
    }),
  );
});
