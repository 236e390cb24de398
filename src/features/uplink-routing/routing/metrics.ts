import type { Settings, UplinkSettings } from "#base/uplink-model";
import type { Route, RouteSpec } from "#kernel/route";
import { type KernelListing, TABLE_MAIN } from "../state/index.ts";
import type { RoutingChange } from "./changes.ts";
import { isOnLink } from "./on-link.ts";

/** First metric of default routes over management uplinks, and over others (docs/spec/uplink-proxy.md#3.1). */
const MANAGEMENT_METRIC = 5000;
const OTHER_METRIC = 10_000;
/** Added to the metric of a second gateway on the same link. */
const SECOND_STEP = 1000;
/** First temporary metric, for routes whose metric is still in use. */
const WAITING_METRIC = 30_000;
/** RTPROT_RA: the kernel renews these routes with each advertisement; a sysctl of the interface sets their metric. */
const PROTOCOL_RA = 9;

/** Pure: the metric of each uplink's default routes, by interface. Cheaper uplinks come first, then uplinks in configuration order. */
export function metricsOf(uplinks: readonly UplinkSettings[]): ReadonlyMap<string, number> {
  const metrics = new Map<string, number>();
  for (const management of [true, false]) {
    const ranked = uplinks.filter((uplink) => uplink.management === management).sort((a, b) => a.cost - b.cost);
    const first = management ? MANAGEMENT_METRIC : OTHER_METRIC;
    for (const [rank, uplink] of ranked.entries()) metrics.set(uplink.interface, first + rank);
  }
  return metrics;
}

/**
 * Pure: gives the main table's default routes over uplinks the metrics of their uplinks, with `setMetrics`. At each
 * step each gateway has at least one route, and a pass that stops midway is finished by the next. Multipath routes, those of router
 * advertisements, those over other links, and those that the kernel would not accept again are not changed.
 */
export function planMetrics({ routing, uplinks }: Settings, listing: KernelListing): RoutingChange[] {
  if (!routing.manage || !routing.setMetrics) return [];
  const metrics = metricsOf(uplinks);
  return ([4, 6] as const).flatMap((family) => {
    const defaults = listing.routes.filter(
      (route) => route.family === family && route.table === TABLE_MAIN && route.dst.prefixLength === 0,
    );
    const inMain = listing.routes.filter((route) => route.family === family && route.table === TABLE_MAIN);
    return arrange(defaults, (route) => {
      const link = listing.links.find(({ index }) => index === route.linkIndex);
      const stays = route.protocol === PROTOCOL_RA || route.type !== "unicast" || route.multipath !== undefined;
      const canBeMade = route.onlink === true || isOnLink(route.gateway, route.linkIndex, inMain);
      return stays || link?.up !== true || !canBeMade ? undefined : metrics.get(link?.name ?? "");
    });
  });
}

/** One gateway, all default routes over it, and the metric that one of them gets. */
interface Gateway {
  readonly routes: Route[];
  readonly metric: number;
}

function arrange(defaults: readonly Route[], metricOf: (route: Route) => number | undefined): RoutingChange[] {
  const gateways = gatewaysOf(defaults, metricOf);
  const leaving = new Set(gateways.flatMap(({ routes, metric }) => routes.filter((route) => route.metric !== metric)));
  const staying = new Set(defaults.filter((route) => !leaving.has(route)).map(({ metric }) => metric ?? 0));
  const vacated = new Set([...leaving].map(({ metric }) => metric ?? 0));
  const steps: Record<"first" | "wait" | "settle" | "done", RoutingChange[]> = {
    first: [],
    wait: [],
    settle: [],
    done: [],
  };
  for (const { routes, metric } of gateways) {
    const [route] = routes;
    if (route === undefined || routes.some((one) => one.metric === metric)) continue;
    if (staying.has(metric)) {
      // A route of another program has the metric already, so the routes of this gateway are not changed.
      for (const one of routes) leaving.delete(one);
    } else if (vacated.has(metric)) {
      const waiting = freeFrom(WAITING_METRIC + steps.wait.length, defaults);
      steps.wait.push({ op: "add-route", route: withMetric(route, waiting) });
      steps.settle.push({ op: "add-route", route: withMetric(route, metric) });
      steps.done.push({ op: "delete-route", route: { ...route, metric: waiting } });
    } else {
      steps.first.push({ op: "add-route", route: withMetric(route, metric) });
    }
  }
  const gone = [...leaving].map((route): RoutingChange => ({ op: "delete-route", route }));
  return [...steps.first, ...steps.wait, ...gone, ...steps.settle, ...steps.done];
}

/** The gateways by link, the preferred one first. A second gateway of a link ranks after the first ones of all links. */
function gatewaysOf(defaults: readonly Route[], metricOf: (route: Route) => number | undefined): Gateway[] {
  const gateways = new Map<string, Gateway>();
  const perLink = new Map<number | undefined, number>();
  for (const route of [...defaults].sort((a, b) => (a.metric ?? 0) - (b.metric ?? 0))) {
    const metric = metricOf(route);
    if (metric === undefined) continue;
    const key = `${route.linkIndex} ${route.gateway ?? ""}`;
    const known = gateways.get(key);
    const before = perLink.get(route.linkIndex) ?? 0;
    if (known === undefined) perLink.set(route.linkIndex, before + 1);
    gateways.set(key, known ?? { routes: [], metric: metric + before * SECOND_STEP });
    gateways.get(key)?.routes.push(route);
  }
  return [...gateways.values()];
}

function freeFrom(first: number, routes: readonly Route[]): number {
  let metric = first;
  while (routes.some((route) => route.metric === metric)) metric += SECOND_STEP;
  return metric;
}

function withMetric(route: Route, metric: number): RouteSpec {
  const { dst, table, protocol, scope, type, linkIndex, gateway, src, onlink, mtu, encap } = route;
  return { dst, table, protocol, scope, type, linkIndex, gateway, src, onlink, mtu, encap, metric };
}
