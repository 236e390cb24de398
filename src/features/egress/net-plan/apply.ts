import { TimeSlice } from "#base/async";
import { ExpectedError } from "#base/errors";
import { isKernelError, KernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import { familiesOf } from "#kernel/rule";
import { diffNet, type NetChange, type ObservedLink, type ObservedNet, type ObservedRoute } from "./diff.ts";
import { EGRESS_PROTOCOL, type NetPlan, type NetScope, type PlannedRule, routeSpec } from "./types.ts";

/** `refused`: the kernel refused a step. `cause` is its `KernelError`. */
export type NetPlanErrorCode = "refused";

/** A step of a plan that the kernel refused; the message names the object. The steps before it stay and are marked as ours. */
export class NetPlanError extends ExpectedError<NetPlanErrorCode> {
  override readonly name = "NetPlanError";
}

/** The FoU, link, neighbour, rule, route and setting ports of one namespace. */
export type NetPorts = Pick<NetStack, "links" | "neighbours" | "routes" | "rules" | "fou" | "sysctl">;

const MAIN_TABLE = 254;

/** Reads what a namespace has of ours. Throws `KernelError`. */
export function observeNet(
  net: NetPorts,
  scope: NetScope,
  plan: { readonly settings: ReadonlyMap<string, unknown>; readonly routes: readonly { readonly table: number }[] },
): ObservedNet {
  const links = net.links.list();
  const present = familiesOf(net.rules);
  const families = scope.families.filter((family) => present.includes(family));
  const rules = families.flatMap((family) => net.rules.list(family)).filter((rule) => scope.isOurRule(rule));
  // Of a table outside the scope only our own routes count: those of the plan, and those to which a rule of ours still leads.
  const shared = new Set([...plan.routes, ...rules].flatMap(({ table }) => (table === undefined ? [] : [table])));
  const ours = new Set(links.filter(({ name }) => scope.isOurLink(name)).map(({ index }) => index));
  return {
    settings: new Map([...plan.settings.keys()].map((key) => [key, settingOf(net, key)])),
    // A kernel without FoU has no ports, and is not asked: a namespace that was never told of FoU would load its module.
    fouPorts: families.flatMap((family) => fouPortsOf(net, family).filter(({ port }) => port === scope.port)),
    links,
    neighbours: ours.size === 0 ? [] : net.neighbours.list().filter(({ linkIndex }) => ours.has(linkIndex)),
    rules,
    routes: families.flatMap((family) => [
      ...[...scope.tables].flatMap((table) => net.routes.list({ family, table })),
      ...[...shared]
        .filter((table) => !scope.tables.has(table) && table !== MAIN_TABLE)
        .flatMap((table) => net.routes.list({ family, table, protocol: EGRESS_PROTOCOL })),
    ]),
  };
}

function settingOf(net: NetPorts, key: string): string | undefined {
  try {
    return net.sysctl.get(key);
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return undefined;
  }
}

function fouPortsOf(net: NetPorts, family: 4 | 6): ObservedNet["fouPorts"] {
  try {
    return net.fou.list(family);
  } catch (error) {
    if (!isKernelError(error, "unsupported")) throw error;
    return [];
  }
}

/**
 * Brings a namespace to `plan` and returns the number of steps; 0 when nothing was to do. Idempotent, and safe to repeat after it
 * was interrupted at any step. Only one call for a namespace may run at a time. Throws {@link NetPlanError} at the first step that
 * the kernel refuses.
 */
export async function syncNet(net: NetPorts, plan: NetPlan, scope: NetScope): Promise<number> {
  const changes = diffNet(plan, observeNet(net, scope, plan), scope.isOurLink);
  const indexes = new LinkIndexes(net);
  const slice = new TimeSlice();
  for (const change of changes) {
    if (slice.isOver) await slice.yield();
    try {
      await stepOf(change).make(net, change, indexes);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      // FoU takes the port when it is told, VXLAN with its first link that is set up.
      const isPort = isKernelError(error, "busy") && (change.op === "open-port" || change.op === "raise-link");
      const why = isPort ? `another program has UDP port ${scope.port} in this network namespace: ` : "";
      throw new NetPlanError("refused", `${stepOf(change).text(change)}: ${why}${error.message}`, { cause: error });
    }
  }
  return changes.length;
}

/** The first step that a namespace lacks of a plan, in words; `undefined` if it has all and nothing else of ours. Throws `KernelError`. */
export function firstStep(net: NetPorts, plan: NetPlan, scope: NetScope): string | undefined {
  const [change] = diffNet(plan, observeNet(net, scope, plan), scope.isOurLink);
  return change === undefined ? undefined : stepOf(change).text(change);
}

/**
 * Pure: whether a namespace has anything that can only be ours: a link by its name, a rule or route by its protocol, or the port. Without a trace of ours,
 * rules and routes within our numbers are another program's.
 */
export function hasTraces(
  { links, rules, routes, fouPorts }: ObservedNet,
  { isOurLink }: Pick<NetScope, "isOurLink">,
): boolean {
  return (
    fouPorts.length > 0 ||
    links.some(({ name }) => isOurLink(name)) ||
    [...rules, ...routes].some(({ protocol }) => protocol === EGRESS_PROTOCOL)
  );
}

/** Other changes of links wait for 0.25 ms for each of them. */
const LINKS_AT_ONCE = 64;

type ChangeOf<Op extends NetChange["op"]> = Extract<NetChange, { readonly op: Op }>;

/** The function that makes a kind of step, and the words for it in an error. */
interface Step<C> {
  readonly make: (net: NetPorts, change: C, indexes: LinkIndexes) => void | Promise<void>;
  readonly text: (change: C) => string;
}

const STEPS: { readonly [Op in NetChange["op"]]: Step<ChangeOf<Op>> } = {
  set: {
    make: (net, { key, value }) => net.sysctl.set(key, value),
    text: ({ key, value }) => `set ${key} to ${value}`,
  },
  "open-port": {
    make: (net, { entry }) => net.fou.add(entry),
    text: ({ entry }) => `open FOU port ${entry.port} of IPv${entry.family}`,
  },
  "close-port": {
    make: (net, { entry }) => net.fou.delete(entry),
    text: ({ entry }) => `close FOU port ${entry.port} of IPv${entry.family}`,
  },
  "make-link": {
    make: (net, { link }, indexes) => {
      indexes.forget();
      const { index } = net.links.create(link.spec);
      if (!link.arp) net.links.set(index, { arp: false });
    },
    text: ({ link }) => `make link ${link.spec.name}`,
  },
  "change-link": {
    make: (net, { name, change }, indexes) => net.links.set(indexes.of(name), change),
    text: ({ name }) => `change link ${name}`,
  },
  "raise-link": {
    make: (net, { name }, indexes) => net.links.set(indexes.of(name), { up: true }),
    text: ({ name }) => `set link ${name} up`,
  },
  "delete-links": {
    make: (net, { links }, indexes) => {
      indexes.forget();
      return deleteLinks(net, links);
    },
    text: ({ links }) => `delete ${links.length} links, ${links[0]?.name} first`,
  },
  "put-neighbour": {
    make: (net, { name, neighbour }, indexes) => net.neighbours.replace({ linkIndex: indexes.of(name), ...neighbour }),
    text: ({ name, neighbour }) => `set neighbour ${neighbour.address} of link ${name}`,
  },
  "add-rule": {
    make: (net, { rule }) => addRule(net, rule),
    text: ({ rule }) => `add IPv${rule.family} rule ${rule.priority}`,
  },
  "delete-rule": {
    make: (net, { rule }) => net.rules.delete(rule),
    text: ({ rule }) => `delete IPv${rule.family} rule ${rule.priority}`,
  },
  "put-route": {
    make: (net, { route }, indexes) =>
      net.routes.replace(routeSpec(route, route.link === undefined ? undefined : indexes.of(route.link))),
    text: ({ route }) => `set route ${route.dst} of table ${route.table}`,
  },
  "delete-route": {
    make: (net, { route }) => deleteRoute(net, route),
    text: ({ route }) => `delete route ${route.dst} of table ${route.table}`,
  },
};

function stepOf(change: NetChange): Step<NetChange> {
  return STEPS[change.op] as Step<NetChange>;
}

/** Adds a rule with the mark that it is ours. Throws `KernelError`. */
export function addRule(net: Pick<NetPorts, "rules">, rule: PlannedRule): void {
  net.rules.add({ ...rule, protocol: EGRESS_PROTOCOL });
}

/** The indexes of links by their names. A router has thousands of routes by one link: it is asked once, and again after links were made or deleted. */
class LinkIndexes {
  readonly #net: NetPorts;
  readonly #known = new Map<string, number>();

  constructor(net: NetPorts) {
    this.#net = net;
  }

  /** Throws `KernelError` `no-device` when there is no such link. */
  of(name: string): number {
    const index = this.#known.get(name) ?? this.#net.links.get({ name })?.index;
    if (index === undefined) throw new KernelError("no-device", `there is no link ${name}`);
    this.#known.set(name, index);
    return index;
  }

  forget(): void {
    this.#known.clear();
  }
}

/** The kernel takes 10 to 20 ms for a deletion, of one link or of many at once; they are done on another thread. */
async function deleteLinks(net: NetPorts, links: readonly ObservedLink[]): Promise<void> {
  for (let at = 0; at < links.length; at += LINKS_AT_ONCE) {
    const failures = await net.links.deleteMany(links.slice(at, at + LINKS_AT_ONCE));
    for (const error of failures.values()) if (!isKernelError(error, "no-device")) throw error;
  }
}

/** A route may have gone with its link since it was read. */
function deleteRoute(net: NetPorts, { dst, table, protocol, type, linkIndex, metric }: ObservedRoute): void {
  try {
    net.routes.delete({ dst, table, protocol, type, linkIndex: type === "unicast" ? linkIndex : undefined, metric });
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
  }
}
