import type { RoutingSettings, UplinkSettings } from "#base/uplink-model";
import type { Link } from "#kernel/link";
import type { KernelListing } from "../state/index.ts";
import { isEndMarker, isOwnRule } from "./ownership.ts";

/** Spare tables start this far above the base. Interfaces whose own table has foreign routes use them (docs/spec/uplink-proxy.md#3.2). */
const SPARE_OFFSET = 1000;

/** The table of each uplink by its name; an uplink without its interface has none. */
export type UplinkTables = ReadonlyMap<string, number>;

/**
 * Pure: the table of each uplink: `tableBase` plus the interface's index, unless that table has foreign routes. Then it is
 * the spare table that was made for the uplink before, or the next free one. A table of ours stays in use, whatever other programs add to
 * it.
 */
export function chooseTables(
  uplinks: readonly UplinkSettings[],
  listing: KernelListing,
  routing: RoutingSettings,
): UplinkTables {
  const tables = new Map<string, number>();
  const displaced: { readonly name: string; readonly link: Link }[] = [];
  for (const { name, interface: ifName } of uplinks) {
    const link = listing.links.find((one) => one.name === ifName);
    if (link === undefined) continue;
    const table = routing.tableBase + link.index;
    if (isOurs(table, listing, routing) || isEmpty(table, listing)) tables.set(name, table);
    else displaced.push({ name, link });
  }
  // A spare table is found by the interface of its routes, or else by rules that lead to it. If none is found, a free one is used.
  let left = displaced;
  for (const find of [spareByRoute, spareByRule]) {
    left = left.filter(({ name, link }) => {
      const known = find(link, listing, routing);
      if (known === undefined || [...tables.values()].includes(known)) return true;
      tables.set(name, known);
      return false;
    });
  }
  for (const { name } of left) tables.set(name, nextSpare(new Set(tables.values()), listing, routing));
  return tables;
}

function isEmpty(table: number, { routes }: KernelListing): boolean {
  return !routes.some((route) => route.table === table);
}

function isOurs(table: number, { routes }: KernelListing, routing: RoutingSettings): boolean {
  return routes.some((route) => route.table === table && isEndMarker(route, routing));
}

/** The spare table of ours whose routes lead over the link. */
function spareByRoute(link: Link, listing: KernelListing, routing: RoutingSettings): number | undefined {
  const over = listing.routes.filter(({ linkIndex, type }) => linkIndex === link.index && type === "unicast");
  return firstSpare(over, listing, routing);
}

/** The spare table that a rule of the link's address leads to. Needed for a link that is down, which has no routes. */
function spareByRule(link: Link, listing: KernelListing, routing: RoutingSettings): number | undefined {
  const own = listing.addresses.filter(({ linkIndex }) => linkIndex === link.index);
  const rules = listing.rules.filter(
    (rule) => isOwnRule(rule, routing) && own.some(({ address }) => rule.from?.base.equals(address) === true),
  );
  return firstSpare(rules, listing, routing);
}

function firstSpare(
  found: readonly { readonly table: number }[],
  listing: KernelListing,
  routing: RoutingSettings,
): number | undefined {
  const start = routing.tableBase + SPARE_OFFSET;
  return found.map(({ table }) => table).find((table) => table >= start && isOurs(table, listing, routing));
}

/** The first spare table that is not in use and is either empty or ours. */
function nextSpare(inUse: ReadonlySet<number>, listing: KernelListing, routing: RoutingSettings): number {
  let table = routing.tableBase + SPARE_OFFSET;
  while (inUse.has(table) || !(isEmpty(table, listing) || isOurs(table, listing, routing))) table += 1;
  return table;
}
