import type { Cidr } from "#base/ip";
import type { Settings } from "#base/uplink-model";
import type { Route, RouteSpec } from "#kernel/route";
import type { Rule, RuleSpec } from "#kernel/rule";
import { canBeSource, type KernelListing, linkOf, TABLE_LOCAL } from "../state/index.ts";
import type { RoutingChange } from "./changes.ts";
import { planMetrics } from "./metrics.ts";
import { isEndMarker, isOwnRoute, isOwnRule, ownTables, type RoutingMarks, TABLE_SERVICES } from "./ownership.ts";
import { chooseTables, type UplinkTables } from "./tables.ts";
import { endMarker, routeKey, sameRoute, serviceRoute, uplinkRoutes } from "./wanted-routes.ts";
import { clusterRules, localRules, sourceRules } from "./wanted-rules.ts";

/** The wanted kernel state. */
export interface WantedRouting {
  readonly tables: UplinkTables;
  readonly routes: readonly RouteSpec[];
  readonly rules: readonly RuleSpec[];
}

/** The wanted state without routing: all our rules and tables are removed. */
export const NO_ROUTING: WantedRouting = { tables: new Map(), routes: [], rules: [] };

/**
 * Pure: the tables and rules for these settings on this host, of the families that its kernel has; none if another program manages routing.
 */
export function wantRouting(settings: Settings, listing: KernelListing): WantedRouting {
  const { routing, uplinks } = settings;
  if (!routing.manage) return NO_ROUTING;
  const tables = chooseTables(uplinks, listing, routing);
  const routes = uplinks.flatMap((uplink) => {
    const table = tables.get(uplink.name);
    const { link } = linkOf(listing, uplink.interface);
    if (table === undefined || link === undefined) return [];
    return uplinkRoutes(uplink, link, listing, { table, protocol: routing.routeProtocol });
  });
  const services = serviceRoutes(settings, listing);
  const viaServices = services.map(({ dst }) => dst);
  const bySource = sourceRules(settings, listing, tables);
  const orphans = orphanMarkers(bySource, tables, routing.routeProtocol);
  const rules = [...localRules(settings), ...clusterRules(settings, viaServices), ...bySource];
  return {
    tables,
    routes: [...routes, ...orphans, ...services].filter(({ dst }) => listing.families.includes(dst.family)),
    rules: rules.filter(({ family }) => listing.families.includes(family)),
  };
}

/** End markers for tables to which only rules still lead. */
function orphanMarkers(rules: readonly RuleSpec[], tables: UplinkTables, protocol: number): RouteSpec[] {
  const inUse = new Set(tables.values());
  const orphans = new Set(rules.flatMap(({ table }) => (table === undefined || inUse.has(table) ? [] : [table])));
  return [...orphans].flatMap((table) => ([4, 6] as const).map((family) => endMarker(family, { table, protocol })));
}

function serviceRoutes({ routing, cluster }: Settings, listing: KernelListing): RouteSpec[] {
  if (routing.clusterInterface === undefined) return [];
  const { link, addresses } = linkOf(listing, routing.clusterInterface);
  if (link?.up !== true) return [];
  const ownFor = (prefix: Cidr) => {
    const fit = addresses.filter(({ address }) => address.family === prefix.family && canBeSource(address));
    return (fit.find(({ address }) => cluster.nodeIP?.equals(address) === true) ?? fit[0])?.address;
  };
  return routing.serviceCIDRs.flatMap((prefix) => {
    const own = ownFor(prefix);
    const place = { table: TABLE_SERVICES, protocol: routing.routeProtocol };
    return own === undefined ? [] : [serviceRoute(prefix, link, own, place)];
  });
}

/**
 * Pure: the changes from the listing to the wanted state, in an order in which no rule ever leads to an empty table: end markers,
 * other routes, rules; then rules that are no longer wanted, their routes, and the markers last. Objects without
 * our marks are not changed; if a route of another program has the key of a wanted route, ours is not added. Objects that we have made with
 * another protocol number get the present one without a gap.
 */
export function diffRouting(listing: KernelListing, wanted: WantedRouting, marks: RoutingMarks): RoutingChange[] {
  const tables = ownTables(listing, marks, wanted.tables.values());
  const inTables = listing.routes.filter(({ table }) => tables.all.has(table));
  const own = inTables.filter((route) => isOwnRoute(route, marks, tables));
  const foreign = new Set(inTables.filter((route) => !isOwnRoute(route, marks, tables)).map(routeKey));
  const routes = diffRoutes(
    own,
    wanted.routes.filter((route) => !foreign.has(routeKey(route))),
  );
  const rules = diffRules(listing.rules, wanted.rules, marks);
  const isMarker = (route: Route): boolean => isEndMarker(route, marks);
  return [
    ...routes.set,
    ...rules.add,
    ...rules.remove,
    ...routes.stale.filter((route) => !isMarker(route)).map(deletion),
    ...routes.stale.filter(isMarker).map(deletion),
  ];
}

const deletion = (route: Route): RoutingChange => ({ op: "delete-route", route });

function diffRoutes(
  own: readonly Route[],
  wanted: readonly RouteSpec[],
): { readonly set: RoutingChange[]; readonly stale: Route[] } {
  const left = new Map<string, Route[]>();
  for (const route of own) left.set(routeKey(route), [...(left.get(routeKey(route)) ?? []), route]);
  const set: RoutingChange[] = [];
  for (const route of wanted) {
    const [is, ...more] = left.get(routeKey(route)) ?? [];
    left.set(routeKey(route), more);
    if (is === undefined) set.push({ op: "add-route", route });
    else if (is.protocol !== route.protocol || !sameRoute(is, route)) set.push({ op: "replace-route", route });
  }
  const marker = ({ route }: Extract<RoutingChange, { route: unknown }>): number =>
    route.type === "unreachable" ? 0 : 1;
  const ordered = set.flatMap((change) => ("route" in change ? [change] : [])).sort((a, b) => marker(a) - marker(b));
  return { set: ordered, stale: [...left.values()].flat() };
}

function diffRules(
  actual: readonly Rule[],
  wanted: readonly RuleSpec[],
  marks: RoutingMarks,
): { readonly add: RoutingChange[]; readonly remove: RoutingChange[] } {
  const stale = new Map<string, Rule[]>();
  for (const rule of actual.filter((one) => isOwnRule(one, marks))) {
    stale.set(ruleKey(rule), [...(stale.get(ruleKey(rule)) ?? []), rule]);
  }
  const add: RoutingChange[] = [];
  for (const rule of wanted) {
    const known = stale.get(ruleKey(rule)) ?? [];
    const is = known.find(({ protocol }) => protocol === rule.protocol);
    stale.set(
      ruleKey(rule),
      known.filter((one) => one !== is),
    );
    if (is === undefined) add.push({ op: "add-rule", rule, ...(known.length === 0 ? {} : { besideEqual: true }) });
  }
  const moved = movedLocal(actual, wanted, marks);
  const remove = [...stale.values()].flat().map((rule): RoutingChange => ({ op: "delete-rule", rule }));
  return { add: [...add, ...moved.add], remove: [...moved.remove, ...remove] };
}

/** The kernel's own rule for the local table is deleted after ours is added, and restored before ours is deleted. */
function movedLocal(
  actual: readonly Rule[],
  wanted: readonly RuleSpec[],
  marks: RoutingMarks,
): { readonly add: RoutingChange[]; readonly remove: RoutingChange[] } {
  const add: RoutingChange[] = [];
  const remove: RoutingChange[] = [];
  for (const family of [4, 6] as const) {
    const isFirst = (rule: Rule): boolean =>
      rule.family === family &&
      rule.priority === 0 &&
      rule.table === TABLE_LOCAL &&
      rule.protocol !== marks.routeProtocol;
    const first = actual.find(isFirst);
    const moves = wanted.some((rule) => rule.family === family && rule.table === TABLE_LOCAL);
    const ours = actual.some((rule) => rule.family === family && rule.table === TABLE_LOCAL && isOwnRule(rule, marks));
    if (moves && first !== undefined) remove.push({ op: "delete-rule", rule: first });
    if (!moves && ours && first === undefined) {
      // The rule gets protocol 2, RTPROT_KERNEL, like the kernel's own rule.
      add.push({ op: "add-rule", rule: { family, priority: 0, table: TABLE_LOCAL, protocol: 2 } });
    }
  }
  return { add, remove };
}

function ruleKey({ family, priority, table, from, to }: RuleSpec): string {
  return `${family} ${priority} ${from ?? ""} ${to ?? ""} ${table}`;
}

/** The changes of one pass. */
export interface RoutingPlan {
  readonly changes: readonly RoutingChange[];
  /** The tables that are in use after the pass. */
  readonly tables: UplinkTables;
}

/** Pure: plans a pass. `former`: marks of earlier settings; objects with these marks are removed after the new objects were added. */
export function planRouting(
  settings: Settings,
  listing: KernelListing,
  former: readonly RoutingMarks[] = [],
): RoutingPlan {
  const wanted = wantRouting(settings, listing);
  const left = former.flatMap((marks) => diffRouting(listing, wanted, marks).filter(isDeletion));
  return {
    tables: wanted.tables,
    changes: [...diffRouting(listing, wanted, settings.routing), ...planMetrics(settings, listing), ...left],
  };
}

/** Pure: plans what is to be made for these settings, and nothing that is to be removed. */
export function planAdditions(settings: Settings, listing: KernelListing): RoutingChange[] {
  const changes = diffRouting(listing, wantRouting(settings, listing), settings.routing);
  return changes.filter((change) => !isDeletion(change));
}

/** Pure: plans the removal of all objects that have the marks. */
export function planFlush(listing: KernelListing, marks: RoutingMarks): RoutingChange[] {
  return diffRouting(listing, NO_ROUTING, marks);
}

function isDeletion({ op }: RoutingChange): boolean {
  return op === "delete-route" || op === "delete-rule";
}
