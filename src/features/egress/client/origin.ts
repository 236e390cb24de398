import { Cidr, type IpFamily } from "#base/ip";
import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import type { RuleSpec } from "#kernel/rule";
import {
  diffComments,
  type FilterBackend,
  type FilterKinds,
  type FilterRule,
  type ListedRule,
} from "../filter/index.ts";
import type { PlannedRoute, PlannedRule } from "../net-plan/index.ts";

/** A route by which answers leave. */
type UplinkRoute = Pick<Route, "dst" | "gateway" | "src" | "metric">;

/** An interface of a pod by which connections may come in: it has a global address, and routes. */
export interface Uplink {
  readonly name: string;
  readonly index: number;
  /** The routes of the main table. */
  readonly routes: readonly UplinkRoute[];
}

/** The priority of the rules for answers. */
export const ORIGIN_RULE = 1000;
/** The table of an interface is this and its index. */
export const ORIGIN_TABLE = 1000;
const MAIN_TABLE = 254;
const LOOPBACK = "lo";
/** A pod may give its interface any name; only such ones get into the text of rules. */
const PLAIN_NAME = /^[A-Za-z0-9_.-]{1,15}$/;
/** The metric of a route that is made from a destination; copies of routes of the main table have a larger one. */
const EXCEPTION_METRIC = 1;
const MAX_METRIC = 4_294_967_295;
/** More routes of one pod are not copied: a process with CAP_NET_ADMIN may have added them. */
const MAX_ROUTES = 1000;

type Kind = "input" | "output";
/** A rule of a packet filter that marks connections by their interface. */
export type OriginMark = ListedRule<Kind>;

/** Coil's tables, chains and marks (docs/spec/pod-network.md#7.3). */
const KINDS: FilterKinds<Kind> = {
  places: {
    input: {
      table: "mangle",
      chain: { nftables: "input", iptables: "INPUT" },
      base: { type: "filter", hook: "input", priority: "mangle" },
    },
    output: {
      table: "mangle",
      chain: { nftables: "output", iptables: "OUTPUT" },
      // The mark that this chain restores has an effect on the way only in a chain of this type.
      base: { type: "route", hook: "output", priority: "mangle" },
    },
  },
  isOurs: (comment) => /^coil-(input|output)-/.test(comment),
};

/** The table of an interface's routes for answers. */
export function originTable(index: number): number {
  return ORIGIN_TABLE + index;
}

/** Returns true if a rule is one for answers: of Coil's numbers, and no other selector. */
export function isOriginRule({ priority, fwmark, table }: Pick<RuleSpec, "priority" | "fwmark" | "table">): boolean {
  return priority === ORIGIN_RULE && fwmark !== undefined && fwmark > 0 && table === originTable(fwmark);
}

/** The interfaces of a namespace by which connections may come in. Throws `KernelError`. */
export function observeUplinks(
  net: Pick<NetStack, "links" | "addresses" | "routes">,
  isOurLink: (name: string) => boolean,
): Uplink[] {
  const global = new Set(
    net.addresses
      .list()
      .filter(({ scope }) => scope === "global")
      .map(({ linkIndex, address }) => `${linkIndex} ${address.family}`),
  );
  const routes = ([4, 6] as const).flatMap((family) => net.routes.list({ family, table: MAIN_TABLE }));
  return net.links
    .list()
    .filter(({ name }) => name !== LOOPBACK && PLAIN_NAME.test(name) && !isOurLink(name))
    .flatMap(({ name, index }) => {
      const own = routes.filter(
        ({ linkIndex, family, type, encap }) =>
          linkIndex === index && type === "unicast" && encap === undefined && global.has(`${index} ${family}`),
      );
      return own.length === 0 ? [] : [{ name, index, routes: own.slice(0, MAX_ROUTES) }];
    });
}

/**
 * Pure: what sends the answers of connections that came in by an interface out by it, in one family. `through` are destinations to which answers
 * go into their tunnel all the same, because their Egress does not want this.
 */
export function planOrigin(
  family: IpFamily,
  uplinks: readonly Uplink[],
  { direct, through }: { readonly direct: readonly Cidr[]; readonly through: readonly Cidr[] },
): { readonly rules: readonly PlannedRule[]; readonly routes: readonly PlannedRoute[] } {
  if (direct.length === 0) return { rules: [], routes: [] };
  const present = uplinks.flatMap(({ routes, ...link }) => {
    const own = routes.filter(({ dst }) => dst.family === family);
    return own.length === 0 ? [] : [{ ...link, table: originTable(link.index), routes: own }];
  });
  return {
    rules: present.map(({ index, table }) => ({ family, priority: ORIGIN_RULE, fwmark: index, table })),
    routes: present.flatMap(({ name, table, routes }) => {
      const inTable = (route: UplinkRoute, metric: number, dst = route.dst): PlannedRoute => {
        const { gateway, src } = route;
        const way = gateway === undefined ? {} : { gateway, onlink: true };
        return { dst, table, type: "unicast", metric, link: name, ...way, ...(src === undefined ? {} : { src }) };
      };
      const metricOf = ({ metric = 0 }: UplinkRoute): number => Math.min(metric + EXCEPTION_METRIC + 1, MAX_METRIC);
      const copies = firstOfEach(routes.map((route) => inTable(route, metricOf(route))));
      const throws = through.map((dst) => ({ dst, table, type: "throw" as const, metric: EXCEPTION_METRIC }));
      // A direct destination inside one that is not: its answers have a route of their own again.
      const nested = direct.filter(isInsideOne(through)).flatMap((dst) => {
        const best = bestOf(routes, dst);
        return best === undefined ? [] : [inTable(best, EXCEPTION_METRIC, dst)];
      });
      return [...copies, ...throws, ...nested];
    }),
  };
}

/** Returns true if a prefix is inside a shorter one of these. Both may be all that an object can have, so the work for one is that of its lengths. */
function isInsideOne(prefixes: readonly Cidr[]): (dst: Cidr) => boolean {
  const known = new Set(prefixes.map(String));
  const lengths = [...new Set(prefixes.map(({ prefixLength }) => prefixLength))];
  return ({ base, prefixLength }) =>
    lengths.some((length) => length < prefixLength && known.has(String(Cidr.of(base, length))));
}

/** The route by which packets to a destination leave. */
function bestOf(routes: readonly UplinkRoute[], to: Cidr): UplinkRoute | undefined {
  return routes
    .filter(({ dst }) => dst.contains(to.base))
    .toSorted((a, b) => b.dst.prefixLength - a.dst.prefixLength || (a.metric ?? 0) - (b.metric ?? 0))[0];
}

function firstOfEach(routes: readonly PlannedRoute[]): PlannedRoute[] {
  const byPlace = new Map<string, PlannedRoute>();
  for (const route of routes) {
    const place = `${route.dst} ${route.metric}`;
    if (!byPlace.has(place)) byPlace.set(place, route);
  }
  return [...byPlace.values()];
}

/** Pure: the rules of the packet filter that mark connections by the interface by which they came in, for the rules of a plan. */
export function planMarks(
  rules: readonly PlannedRule[],
  uplinks: readonly Pick<Uplink, "name" | "index">[],
): FilterRule<Kind>[] {
  return rules.filter(isOriginRule).flatMap(({ family, fwmark: mark = 0 }) => {
    const name = uplinks.find(({ index }) => index === mark)?.name;
    if (name === undefined) return [];
    return [
      {
        family,
        kind: "input" as const,
        comment: `coil-input-${name} mark ${mark} original`,
        // The answers to what the pod has sent come in by the interface too. They must not lead its next packets past an Egress.
        nftables: `iifname "${name}" ct direction original ct state new,established,related ct mark set ${mark}`,
        iptables: [
          ...["-i", name, "-m", "conntrack", "--ctstate", "NEW,ESTABLISHED,RELATED", "--ctdir", "ORIGINAL"],
          ...["-j", "CONNMARK", "--set-mark", String(mark)],
        ],
      },
      {
        family,
        kind: "output" as const,
        comment: `coil-output-${name} mark ${mark}`,
        nftables: `ct mark ${mark} meta mark set ct mark`,
        iptables: ["-m", "connmark", "--mark", String(mark), "-j", "CONNMARK", "--restore-mark"],
      },
    ];
  });
}

/** Brings our marks in a namespace's packet filter to `wanted`; the number of rules added and deleted. Rejects as `FilterBackend.sync`. */
export function syncMarks(filter: FilterBackend, wanted: readonly FilterRule<Kind>[]): Promise<number> {
  return filter.sync(KINDS, wanted);
}

/** Our marks in a packet filter. Rejects as `FilterBackend.sync`. */
export function listMarks(filter: FilterBackend): Promise<readonly OriginMark[]> {
  return filter.list(KINDS);
}

/** Pure: what of our marks a packet filter lacks and has too much. */
export function diffMarks(
  wanted: readonly FilterRule<Kind>[],
  listed: readonly OriginMark[],
): { readonly missing: readonly FilterRule<Kind>[]; readonly stale: readonly OriginMark[] } {
  const cells = (["input", "output"] as const).flatMap((kind) => ([4, 6] as const).map((family) => ({ kind, family })));
  const parts = cells.map(({ kind, family }) => {
    const isOf = (one: ListedRule<Kind>): boolean => one.kind === kind && one.family === family;
    return diffComments(wanted.filter(isOf), listed.filter(isOf));
  });
  return { missing: parts.flatMap(({ missing }) => missing), stale: parts.flatMap(({ stale }) => stale) };
}

/** Resolves with true if a packet filter marks the connections that come in by an interface, and their answers. Rejects as `FilterBackend.sync`. */
export async function isMarkedBy(
  filter: FilterBackend,
  family: IpFamily,
  { name, index }: Pick<Uplink, "name" | "index">,
): Promise<boolean> {
  const rule: PlannedRule = { family, priority: ORIGIN_RULE, fwmark: index, table: originTable(index) };
  const { missing } = diffMarks(planMarks([rule], [{ name, index }]), await listMarks(filter));
  return missing.length === 0;
}
