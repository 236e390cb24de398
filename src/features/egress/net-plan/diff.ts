import type { FouPortEntry } from "#kernel/fou";
import type { Link, LinkDetails } from "#kernel/link";
import type { Neighbour } from "#kernel/neighbour";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";
import type { NetPlan, PlannedLink, PlannedNeighbour, PlannedRoute, PlannedRule } from "./types.ts";

/** The compared properties of a link. */
export type ObservedLink = Pick<Link, "index" | "name" | "kind" | "mac" | "mtu" | "up" | "flags" | "details">;
/** The compared properties of a route. */
export type ObservedRoute = Pick<
  Route,
  "dst" | "table" | "protocol" | "type" | "linkIndex" | "gateway" | "src" | "metric" | "encap" | "mtu"
>;

/** Our objects in a namespace, and the names of its other links. */
export interface ObservedNet {
  /** The values that the plan's settings have now; `undefined`: there is no such setting. */
  readonly settings: ReadonlyMap<string, string | undefined>;
  readonly fouPorts: readonly FouPortEntry[];
  /** All links of the namespace. */
  readonly links: readonly ObservedLink[];
  /** Permanent neighbours of our links. */
  readonly neighbours: readonly Pick<Neighbour, "linkIndex" | "address" | "mac" | "state">[];
  readonly rules: readonly Rule[];
  /** The routes in our tables, whatever their protocol. */
  readonly routes: readonly ObservedRoute[];
}

/** One step from the observed to the planned state. The steps of a list are done in its order. */
export type NetChange =
  | { readonly op: "set"; readonly key: string; readonly value: string }
  | { readonly op: "open-port"; readonly entry: FouPortEntry }
  | { readonly op: "close-port"; readonly entry: FouPortEntry }
  | { readonly op: "make-link"; readonly link: PlannedLink }
  | { readonly op: "change-link"; readonly name: string; readonly change: LinkFix }
  | { readonly op: "raise-link"; readonly name: string }
  | { readonly op: "delete-links"; readonly links: readonly ObservedLink[] }
  | { readonly op: "put-neighbour"; readonly name: string; readonly neighbour: PlannedNeighbour }
  | { readonly op: "add-rule"; readonly rule: PlannedRule }
  | { readonly op: "delete-rule"; readonly rule: Rule }
  | { readonly op: "put-route"; readonly route: PlannedRoute }
  | { readonly op: "delete-route"; readonly route: ObservedRoute };

/** Properties of a link that the kernel changes without making it anew. */
export interface LinkFix {
  readonly mtu?: number;
  readonly arp?: false;
}

/** IFF_NOARP of linux/if.h. */
const IFF_NOARP = 0x80;

/**
 * The steps from `observed` to `plan`. Pure; no step when they are equal. The order is safe at each point: a tunnel is whole before a
 * route leads to it, a destination keeps an `unreachable` route while its tunnel is made anew or by another driver, and rules lead to complete tables.
 */
export function diffNet(plan: NetPlan, observed: ObservedNet, isOurLink: (name: string) => boolean): NetChange[] {
  const { make, fix, raise, stale } = diffLinks(plan, observed, isOurLink);
  const remade = new Set(make.map((link) => link.spec.name));
  const ports = diffPorts(plan, observed);
  // FoU and VXLAN have one UDP port: the driver before gives it up first, and is gone then.
  const isHandedOver =
    (ports.open.length > 0 && stale.some(hasPort)) ||
    (ports.close.length > 0 && plan.links.some(({ spec }) => raise.includes(spec.name) && hasPort(spec)));
  const early = isHandedOver ? stale : stale.filter(({ name }) => remade.has(name));
  const { put, remove } = diffRoutes(plan, observed, new Set([...remade, ...early.map(({ name }) => name)]));
  const rules = diffRules(plan, observed);
  // Those that lead into no tunnel: a rule to their table must find it whole.
  const planned = new Set(plan.links.map(({ spec }) => spec.name));
  const isEarly = ({ type, link }: PlannedRoute): boolean =>
    type === "unreachable" || (link !== undefined && !planned.has(link));
  const guards = put.filter(isEarly);
  const ways = put.filter((route) => !isEarly(route));
  const open = ports.open.map((entry) => ({ op: "open-port" as const, entry }));
  const close = ports.close.map((entry) => ({ op: "close-port" as const, entry }));
  return [
    ...[...plan.settings]
      .filter(([key, value]) => observed.settings.get(key) !== value)
      .map(([key, value]) => ({ op: "set" as const, key, value })),
    ...(isHandedOver ? [] : open),
    ...guards.map((route) => ({ op: "put-route" as const, route })),
    ...rules.add.map((rule) => ({ op: "add-rule" as const, rule })),
    // Two tunnels with the same ends cannot be: a link that has to be made anew goes first.
    ...deletionOf(early),
    ...(isHandedOver ? [...close, ...open] : []),
    ...make.map((link) => ({ op: "make-link" as const, link })),
    ...fix,
    ...diffNeighbours(plan, observed, remade),
    ...raise.map((name) => ({ op: "raise-link" as const, name })),
    ...ways.map((route) => ({ op: "put-route" as const, route })),
    ...remove.map((route) => ({ op: "delete-route" as const, route })),
    ...rules.remove.map((rule) => ({ op: "delete-rule" as const, rule })),
    ...deletionOf(stale.filter((link) => !early.includes(link))),
    ...(isHandedOver ? [] : close),
  ];
}

/** Returns true if links of a kind have a UDP port while they are up. */
function hasPort({ kind }: Pick<ObservedLink, "kind">): boolean {
  return kind === "vxlan";
}

function deletionOf(links: readonly ObservedLink[]): NetChange[] {
  return links.length === 0 ? [] : [{ op: "delete-links", links }];
}

function diffLinks(plan: NetPlan, observed: ObservedNet, isOurLink: (name: string) => boolean) {
  const before = new Map(observed.links.map((link) => [link.name, link]));
  const wanted = new Set(plan.links.map(({ spec }) => spec.name));
  const make: PlannedLink[] = [];
  const fix: NetChange[] = [];
  const raise: string[] = [];
  const stale = observed.links.filter(({ name }) => isOurLink(name) && !wanted.has(name));
  for (const link of plan.links) {
    const { name, mtu } = link.spec;
    const actual = before.get(name);
    if (actual === undefined || !isSameTunnel(link, actual)) {
      if (actual !== undefined) stale.push(actual);
      make.push(link);
      raise.push(name);
      continue;
    }
    const change: LinkFix = {
      ...(mtu === undefined || mtu === actual.mtu ? {} : { mtu }),
      ...(link.arp || (actual.flags & IFF_NOARP) !== 0 ? {} : { arp: false as const }),
    };
    if (Object.keys(change).length > 0) fix.push({ op: "change-link", name, change });
    if (!actual.up) raise.push(name);
  }
  return { make, fix, raise, stale };
}

/** Returns true if all that is planned of a link, and that only a new link can change, is so. */
function isSameTunnel({ spec }: PlannedLink, actual: ObservedLink): boolean {
  const { name: _name, mtu: _mtu, mac, netns: _netns, ...details } = spec;
  if (actual.kind !== spec.kind) return false;
  if (mac !== undefined && actual.mac?.equals(mac) !== true) return false;
  return actual.details === undefined ? Object.keys(details).length === 1 : holds(details, actual.details);
}

/** Returns true if `actual` has every value of `wanted`. Addresses are compared by their text. */
function holds(wanted: object, actual: LinkDetails | object): boolean {
  const values = actual as Readonly<Record<string, unknown>>;
  return Object.entries(wanted).every(([key, value]) => {
    const other = values[key];
    if (value === undefined || value === other) return true;
    if (typeof value !== "object" || value === null) return false;
    return "toJSON" in value ? String(value) === String(other) : holds(value, Object(other));
  });
}

function diffNeighbours(plan: NetPlan, observed: ObservedNet, remade: ReadonlySet<string>): NetChange[] {
  const indexes = new Map(observed.links.map(({ name, index }) => [name, index]));
  const known = new Set(
    observed.neighbours
      .filter(({ state }) => state === "permanent")
      .map(({ linkIndex, address, mac }) => `${linkIndex} ${address} ${mac}`),
  );
  return plan.links.flatMap(({ spec: { name }, neighbours }) =>
    neighbours
      .filter(({ address, mac }) => remade.has(name) || !known.has(`${indexes.get(name)} ${address} ${mac}`))
      .map((neighbour) => ({ op: "put-neighbour" as const, name, neighbour })),
  );
}

const placeOf = ({ dst, table, metric }: { dst: unknown; table: number; metric?: number | undefined }): string =>
  `${dst} ${table} ${metric ?? 0}`;

/** The routes of a link that is made anew are lost with it, so they are put again. */
function diffRoutes(plan: NetPlan, observed: ObservedNet, remade: ReadonlySet<string>) {
  const indexes = new Map(observed.links.map(({ name, index }) => [name, index]));
  const left = new Map<string, ObservedRoute>();
  const surplus: ObservedRoute[] = [];
  for (const route of observed.routes) {
    if (left.has(placeOf(route))) surplus.push(route);
    else left.set(placeOf(route), route);
  }
  const lost = new Set([...remade].map((name) => indexes.get(name)).filter((index) => index !== undefined));
  const put: PlannedRoute[] = [];
  for (const route of plan.routes) {
    const actual = left.get(placeOf(route));
    left.delete(placeOf(route));
    if (actual === undefined || lost.has(actual.linkIndex ?? 0) || !isSameWay(route, actual, indexes)) put.push(route);
  }
  const stale = new Set(
    observed.links.filter(({ name }) => !plan.links.some(({ spec }) => spec.name === name)).map(({ index }) => index),
  );
  const remove = [...left.values(), ...surplus].filter(({ linkIndex }) => !lost.has(linkIndex ?? 0));
  // Those of links that go are deleted before, so that their packets meet the next route instead of a dead link.
  return {
    put,
    remove: remove.sort((a, b) => Number(stale.has(b.linkIndex ?? 0)) - Number(stale.has(a.linkIndex ?? 0))),
  };
}

function isSameWay(wanted: PlannedRoute, actual: ObservedRoute, indexes: ReadonlyMap<string, number>): boolean {
  const { encap } = wanted;
  return (
    wanted.type === actual.type &&
    (wanted.link === undefined || indexes.get(wanted.link) === actual.linkIndex) &&
    String(wanted.gateway) === String(actual.gateway) &&
    (wanted.src === undefined || String(wanted.src) === String(actual.src)) &&
    (wanted.mtu === undefined || wanted.mtu === actual.mtu) &&
    (encap === undefined
      ? actual.encap === undefined
      : encap.id === actual.encap?.id && String(encap.dst) === String(actual.encap?.dst))
  );
}

/** Equal for rules that do the same; a rule with a selector or an action that no plan has equals none of a plan. */
function ruleText(rule: PlannedRule | Rule): string {
  const { family, priority, table, to, iif, fwmark } = rule;
  const others =
    "action" in rule ? [rule.action, rule.from, rule.oif, rule.invert, rule.suppressPrefixLength] : ["lookup"];
  return [family, priority, table, to, iif, fwmark, ...others]
    .map((part) => part ?? "")
    .join(" ")
    .trim();
}

function diffRules(plan: NetPlan, observed: ObservedNet) {
  const left = new Map<string, Rule[]>();
  for (const rule of observed.rules) left.set(ruleText(rule), [...(left.get(ruleText(rule)) ?? []), rule]);
  const add = plan.rules.filter((rule) => left.get(ruleText(rule))?.shift() === undefined);
  return { add, remove: [...left.values()].flat() };
}

function diffPorts(plan: NetPlan, observed: ObservedNet) {
  const text = ({ family, port, ipProtocol }: FouPortEntry): string => `${family} ${port} ${ipProtocol}`;
  const before = new Set(observed.fouPorts.map(text));
  const wanted = new Set(plan.fouPorts.map(text));
  return {
    open: plan.fouPorts.filter((entry) => !before.has(text(entry))),
    close: observed.fouPorts.filter((entry) => !wanted.has(text(entry))),
  };
}
