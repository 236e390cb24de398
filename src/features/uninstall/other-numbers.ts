import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** The numbers by which rules and routes of the suite are found. */
export interface Numbers {
  readonly podTableId: number;
  readonly podRulePrio: number;
  readonly exportTableId: number;
  readonly protocolId: number;
}

/**
 * Pure: rules and routes that have some of the numbers, or lead to links of pods, and so look like those of a program that had other numbers: one line each, with the flags that would take them. They are
 * never removed without these flags, since others may have such numbers too. Routes of one table and protocol are one line.
 */
export function otherNumbers(
  seen: { readonly rules: readonly Rule[]; readonly routes: readonly Route[]; readonly podLinks: ReadonlySet<number> },
  numbers: Numbers,
): string[] {
  const known = new Set([numbers.podTableId, numbers.exportTableId]);
  const lines = new Map<string, number>();
  const tables = new Set<number>();
  for (const { table, protocol, linkIndex } of seen.routes) {
    if (isWellKnown(table)) continue;
    const isToPod = linkIndex !== undefined && seen.podLinks.has(linkIndex);
    const flags = flagsOf({ table, protocol, isToPod }, known, numbers);
    if (flags === undefined) continue;
    if (isToPod) tables.add(table);
    const key = `routes of table ${table} and protocol ${protocol}${isToPod ? " to links of pods" : ""}: ${flags}`;
    lines.set(key, (lines.get(key) ?? 0) + 1);
  }
  const rules = seen.rules
    .filter(({ priority, table, from, to }) => {
      if (from !== undefined || to !== undefined || table === undefined) return false;
      if (table === numbers.podTableId) return priority !== numbers.podRulePrio;
      return tables.has(table) || (priority === numbers.podRulePrio && !isWellKnown(table));
    })
    .map(
      ({ family, priority, table }) =>
        `IPv${family} rule ${priority}: lookup ${table}: if it was coild's, give --pod-table-id=${table} --pod-rule-prio=${priority}`,
    );
  return [...rules, ...[...lines].map(([line, count]) => `${count} ${line}`)];
}

function flagsOf(
  { table, protocol, isToPod }: { readonly table: number; readonly protocol: number; readonly isToPod: boolean },
  known: ReadonlySet<number>,
  numbers: Numbers,
): string | undefined {
  const isOwn = protocol === numbers.protocolId;
  if (isToPod && !(known.has(table) && isOwn))
    return `if they were coild's, give --pod-table-id=${table} --protocol-id=${protocol}`;
  if (isOwn && !known.has(table)) return `if they were coild's, give --export-table-id=${table}`;
  return undefined;
}

/** The kernel's own tables: default, main, local. */
function isWellKnown(table: number): boolean {
  return table >= 253 && table <= 255;
}
