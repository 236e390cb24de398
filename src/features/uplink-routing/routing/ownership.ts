import type { RoutingSettings } from "#base/uplink-model";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";
import { type KernelListing, TABLE_LOCAL, TABLE_MAIN } from "../state/index.ts";

/** The highest metric: the kernel uses a route with this metric only if no other route matches. */
export const LAST_METRIC = 0xffff_ffff;
/** Number of the table with the Service prefixes, used if the cluster has its own interface (docs/spec/uplink-proxy.md#3.1). */
export const TABLE_SERVICES = 400;
/** The highest number of a table. */
export const LAST_TABLE = 0xffff_ffff;

/**
 * RTPROT_BGP of include/uapi/linux/rtnetlink.h, the number of our objects up to release 0.1. Routing daemons such as FRR have it too, and adopt
 * what has it.
 */
export const FORMER_PROTOCOL = 186;

/** The numbers that mark our rules and tables. */
export type RoutingMarks = Pick<
  RoutingSettings,
  "tableBase" | "rulePriority" | "localRulePriority" | "kubeRulePriority" | "routeProtocol"
>;

/**
 * Pure: the `unreachable default` that ends each of our tables; added first and deleted last. It distinguishes our tables from tables of
 * other programs that use the same protocol number.
 */
export function isEndMarker(route: Route, { routeProtocol }: Pick<RoutingMarks, "routeProtocol">): boolean {
  const { type, dst, metric, protocol } = route;
  return (
    type === "unreachable" && dst.prefixLength === 0 && metric === LAST_METRIC && isOwnNumber(protocol, routeProtocol)
  );
}

/** Pure: tables that end as ours do, with marks of none of these settings, such as `table 3002 and protocol 99`. The kernel's own route of IPv6 looks alike. */
export function otherTables(routes: readonly Route[], marks: readonly RoutingMarks[]): readonly string[] {
  const isOurs = (route: Route): boolean => marks.some((one) => route.table > one.tableBase && isEndMarker(route, one));
  const ends = routes.filter(
    (route) =>
      route.table > TABLE_LOCAL && isEndMarker(route, { routeProtocol: route.protocol ?? 0 }) && !isOurs(route),
  );
  return [...new Set(ends.map(({ table, protocol }) => `table ${table} and protocol ${protocol}`))];
}

/** Our number now, or that of a former release: the rest of an object's key tells whether it is ours. */
function isOwnNumber(protocol: number | undefined, routeProtocol: number): boolean {
  return protocol === routeProtocol || protocol === FORMER_PROTOCOL;
}

/** Pure: whether the rule is ours: one for a source, one for a prefix of the cluster, or the moved rule of the local table. */
export function isOwnRule(rule: Rule, marks: RoutingMarks): boolean {
  if (!isOwnNumber(rule.protocol, marks.routeProtocol) || rule.action !== "lookup") return false;
  if (rule.priority === marks.rulePriority && rule.from?.hostBits === 0 && rule.table > marks.tableBase) return true;
  const ofCluster = rule.table === TABLE_MAIN || rule.table === TABLE_SERVICES;
  if (rule.priority === marks.kubeRulePriority && rule.to !== undefined && ofCluster) return true;
  // Others may have the former number.
  return rule.table === TABLE_LOCAL && (rule.protocol !== FORMER_PROTOCOL || isMoved(rule, marks));
}

function isMoved({ priority }: Rule, { localRulePriority }: RoutingMarks): boolean {
  return priority === localRulePriority && localRulePriority !== 0;
}

/**
 * Pure: whether a route of one of `tables` is ours. One with {@link FORMER_PROTOCOL} is only where an end marker or a rule of ours tells that the
 * table is: others have the number too.
 */
export function isOwnRoute({ protocol, table }: Route, marks: RoutingMarks, tables: OwnTables): boolean {
  if (!tables.all.has(table)) return false;
  return protocol === marks.routeProtocol || (protocol === FORMER_PROTOCOL && tables.marked.has(table));
}

/** `all`: the tables that are ours, also before anything is in them. `marked`: those of an end marker or a rule of ours. */
export interface OwnTables {
  readonly all: ReadonlySet<number>;
  readonly marked: ReadonlySet<number>;
}

/** Pure: the tables that are ours, given those in use for uplinks. */
export function ownTables(listing: KernelListing, marks: RoutingMarks, inUse: Iterable<number>): OwnTables {
  const marked = new Set<number>();
  for (const route of listing.routes) {
    if (route.table > marks.tableBase && isEndMarker(route, marks)) marked.add(route.table);
  }
  for (const rule of listing.rules) {
    const isOfTable = rule.table > marks.tableBase || rule.table === TABLE_SERVICES;
    if (isOfTable && isOwnRule(rule, marks)) marked.add(rule.table);
  }
  return { all: new Set([...inUse, ...marked, TABLE_SERVICES]), marked };
}
