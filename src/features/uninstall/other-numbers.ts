import { type ClaimOf, inSpan, type KernelClaim } from "#base/estate";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** The kernel's rules and routes, and the indexes of the links of pods. */
interface Listing {
  readonly rules: readonly Rule[];
  readonly routes: readonly Route[];
  readonly podLinks: ReadonlySet<number>;
}

/**
 * Pure: rules and routes that have some of the numbers of `claims`, or lead to links of pods, and so look like those of a `coild` that had other numbers: one line each, with the flags
 * that would take them. They are never removed without these flags, since others may have such numbers too. Routes of one table and protocol are one line.
 */
export function otherNumbers(listing: Listing, known: readonly KernelClaim[]): string[] {
  const routes = known.flatMap((claim) => (claim.kind === "routes" ? [claim] : []));
  const { lines, tables } = otherRoutes(listing, routes);
  const rules = otherRules(
    listing.rules,
    known.flatMap((claim) => (claim.kind === "rules" ? [claim] : [])),
    tables,
  );
  return [...rules, ...[...lines].map(([line, count]) => `${count} ${line}`)];
}

/** The lines of routes with their numbers, and the tables of those that lead to links of pods. */
function otherRoutes(
  { routes, podLinks }: Listing,
  claims: readonly ClaimOf<"routes">[],
): { readonly lines: ReadonlyMap<string, number>; readonly tables: ReadonlySet<number> } {
  const lines = new Map<string, number>();
  const tables = new Set<number>();
  for (const { table, protocol, linkIndex } of routes) {
    if (isWellKnown(table)) continue;
    const isToPod = linkIndex !== undefined && podLinks.has(linkIndex);
    const flags = flagsOf({ table, protocol, isToPod }, claims);
    if (flags === undefined) continue;
    if (isToPod) tables.add(table);
    const key = `routes of table ${table} and protocol ${protocol}${isToPod ? " to links of pods" : ""}: ${flags}`;
    lines.set(key, (lines.get(key) ?? 0) + 1);
  }
  return { lines, tables };
}

function flagsOf(
  { table, protocol, isToPod }: { readonly table: number; readonly protocol: number; readonly isToPod: boolean },
  claims: readonly ClaimOf<"routes">[],
): string | undefined {
  const isClaimed = claims.some((claim) => inSpan(claim.table, table) && claim.protocol === protocol);
  if (isToPod && !isClaimed) return `if they were coild's, give --pod-table-id=${table} --protocol-id=${protocol}`;
  const isOwnTable = claims.some((claim) => inSpan(claim.table, table));
  if (!isOwnTable && claims.some((claim) => claim.protocol === protocol))
    return `if they were coild's, give --export-table-id=${table}`;
  return undefined;
}

function otherRules(
  rules: readonly Rule[],
  claims: readonly ClaimOf<"rules">[],
  podTables: ReadonlySet<number>,
): readonly string[] {
  return rules
    .filter(({ priority, table, from, to }) => {
      if (from !== undefined || to !== undefined || table === undefined) return false;
      if (claims.some((claim) => inSpan(claim.table, table) && inSpan(claim.priority, priority))) return false;
      if (claims.some((claim) => inSpan(claim.table, table)) || podTables.has(table)) return true;
      return claims.some((claim) => inSpan(claim.priority, priority)) && !isWellKnown(table);
    })
    .map(
      ({ family, priority, table }) =>
        `IPv${family} rule ${priority}: lookup ${table}: if it was coild's, give --pod-table-id=${table} --pod-rule-prio=${priority}`,
    );
}

/** The kernel's own tables: default, main, local. */
function isWellKnown(table: number): boolean {
  return table >= 253 && table <= 255;
}
