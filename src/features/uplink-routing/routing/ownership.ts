import type { RoutingSettings } from "#base/uplink-model";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";
import { type KernelListing, TABLE_LOCAL, TABLE_MAIN } from "../state/index.ts";

/** The highest metric: the kernel uses a route with this metric only if no other route matches. */
export const LAST_METRIC = 0xffff_ffff;
/** Number of the table with the Service prefixes, used if the cluster has its own interface (docs/spec/uplink-proxy.md#3.1). */
export const TABLE_SERVICES = 400;

/** The numbers that mark our rules and tables. */
export type RoutingMarks = Pick<
  RoutingSettings,
  "tableBase" | "rulePriority" | "localRulePriority" | "kubeRulePriority" | "routeProtocol"
>;

/**
 * Pure: the `unreachable default` that ends each of our tables; added first and deleted last. It distinguishes our tables from tables of
 * other programs that use the same protocol number; iproute2 names that number BGP.
 */
export function isEndMarker(route: Route, { routeProtocol }: RoutingMarks): boolean {
  const { type, dst, metric, protocol } = route;
  return type === "unreachable" && dst.prefixLength === 0 && metric === LAST_METRIC && protocol === routeProtocol;
}

/** Pure: whether the rule is ours: one for a source, one for a prefix of the cluster, or the moved rule of the local table. */
export function isOwnRule(rule: Rule, marks: RoutingMarks): boolean {
  if (rule.protocol !== marks.routeProtocol || rule.action !== "lookup") return false;
  if (rule.priority === marks.rulePriority && rule.from?.hostBits === 0 && rule.table > marks.tableBase) return true;
  const ofCluster = rule.table === TABLE_MAIN || rule.table === TABLE_SERVICES;
  if (rule.priority === marks.kubeRulePriority && rule.to !== undefined && ofCluster) return true;
  return rule.table === TABLE_LOCAL;
}

/** Pure: the tables that are ours, given those in use for uplinks. */
export function ownTables(listing: KernelListing, marks: RoutingMarks, inUse: Iterable<number>): ReadonlySet<number> {
  const tables = new Set(inUse);
  for (const route of listing.routes) {
    if (route.table > marks.tableBase && isEndMarker(route, marks)) tables.add(route.table);
  }
  for (const rule of listing.rules) {
    if (rule.table > marks.tableBase && isOwnRule(rule, marks)) tables.add(rule.table);
  }
  return tables.add(TABLE_SERVICES);
}
