import type { Clock } from "#base/clock";
import type { Cidr, IpAddress } from "#base/ip";
import type { NetStack } from "#kernel/net";
import type { Route, RouteSpec } from "#kernel/route";
import { applyRoutes, planRoutes, type RouteChange } from "./plan.ts";
import { RouteSync } from "./route-sync.ts";
import { type RouterNode, type RouterSkip, routesToNodes, withKnownWays } from "./wanted.ts";

/** The routes that a sync wanted, and what it changed. */
export interface NodeRoutesResult {
  readonly changes: number;
  /** True when all routes were compared with the kernel. */
  readonly whole: boolean;
}

export interface NodeRoutesOptions {
  readonly table: number;
  readonly protocol: number;
  /** A sync that comes at least this time after the last whole sync, in milliseconds, is a whole sync. */
  readonly wholeEveryMs: number;
}

/** The nodes and their routes, as a sync reads them. */
export interface NodesView {
  /** All nodes that have prefixes, also those without a Node object. */
  readonly all: () => Iterable<RouterNode>;
  /** One node; `undefined` if it has no prefixes, or none any more. */
  readonly get: (name: string) => RouterNode | undefined;
  /** The names of the nodes that have changed since the last sync. */
  readonly changed: Iterable<string>;
}

/** Prefixes that are set again one by one; with more, all routes are compared. */
const MAX_LOST = 1000;

interface Owned {
  readonly node: string;
  readonly route: RouteSpec;
}

/**
 * The routes to the other nodes' blocks, kept up to date. A whole sync lists the kernel's routes and repairs them; it takes some 0.2 s for
 * 40,000 routes. So if only a few nodes have changed, only their routes are set and unset, from memory of the last sync. The first sync is
 * a whole sync; so is a sync after a failure, and a sync that comes `wholeEveryMs` after the last whole sync.
 *
 * A node without an address of a family keeps the gateway that routes to its prefixes had, until it has one again or has no prefix; the first
 * sync takes these from the kernel.
 *
 * Memory: the wanted routes, bounded by the blocks of the cluster.
 */
export class NodeRoutes {
  readonly #stack: Pick<NetStack, "routes">;
  readonly #clock: Clock;
  readonly #options: NodeRoutesOptions;
  readonly #sync: RouteSync;
  /** Prefix → its route, as the kernel reports it if the last sync succeeded. */
  readonly #routes = new Map<string, Owned>();
  /** Node → the prefixes that it had at its last sync. */
  readonly #prefixes = new Map<string, readonly string[]>();
  /** Node → its prefixes that cannot be routed; nodes without any are absent. */
  readonly #skipped = new Map<string, readonly RouterSkip[]>();
  /** Prefixes whose routes are set again by the next sync; at most {@link MAX_LOST}. */
  readonly #lost = new Set<string>();
  /** True if two nodes have the same prefix. When one of them loses it, only a whole sync finds the other's route. */
  #isContested = false;
  /** Monotonic milliseconds of the last whole sync; `undefined`: the next one must be whole. */
  #wholeAtMs: number | undefined;
  #isBehind = false;
  #links: ReadonlySet<number> = new Set();

  constructor(deps: { readonly stack: Pick<NetStack, "routes">; readonly clock: Clock }, options: NodeRoutesOptions) {
    this.#stack = deps.stack;
    this.#clock = deps.clock;
    this.#options = options;
    this.#sync = new RouteSync(deps.stack, options);
  }

  /** The number of wanted routes. */
  get size(): number {
    return this.#routes.size;
  }

  /** The prefixes that cannot be routed. */
  get skipped(): readonly RouterSkip[] {
    return [...this.#skipped.values()].flat();
  }

  /** True if the kernel refused a route of the last sync. */
  get isBehind(): boolean {
    return this.#isBehind;
  }

  /** The ifindexes of the links that our routes led to when all were compared the last time. */
  get links(): ReadonlySet<number> {
    return this.#links;
  }

  /** True for a prefix of {@link NodeRoutes.size}. */
  wants(dst: Cidr): boolean {
    return this.#routes.has(dst.toString());
  }

  /** The next sync compares all routes with the kernel's: others may have changed them. */
  compareNext(): void {
    this.#wholeAtMs = undefined;
  }

  /** The next sync sets the route of this prefix again, if it is wanted: another program may have removed it. */
  setNext(dst: Cidr): void {
    if (this.#lost.size >= MAX_LOST) this.compareNext();
    else this.#lost.add(dst.toString());
  }

  /** Brings the routes to the wanted state. Throws `RouteSyncError` after all changes were tried; the next sync is a whole one then. */
  sync(nodes: NodesView): NodeRoutesResult {
    const nowMs = this.#clock.monotonic();
    const wholeAtMs = this.#wholeAtMs;
    // An error before the end leaves this value.
    this.#wholeAtMs = undefined;
    this.#isBehind = true;
    const whole = wholeAtMs === undefined || nowMs - wholeAtMs >= this.#options.wholeEveryMs;
    const changes = this.#apply(whole ? this.#planAll(nodes) : this.#planSome(nodes));
    this.#isBehind = false;
    if (!this.#isContested) this.#wholeAtMs = whole ? nowMs : wholeAtMs;
    return { changes, whole };
  }

  #apply(plan: readonly RouteChange[]): number {
    applyRoutes(this.#stack.routes, plan);
    return plan.length;
  }

  #planAll(nodes: NodesView): RouteChange[] {
    this.#lost.clear();
    const actual = this.#sync.list();
    this.#links = new Set(actual.flatMap(({ linkIndex }) => linkIndex ?? []));
    const gateways = gatewaysOf(actual);
    const wanted = Array.from(nodes.all(), (node) => this.#withKnownWays(node, gateways));
    this.#isContested = false;
    this.#routes.clear();
    this.#prefixes.clear();
    this.#skipped.clear();
    for (const node of wanted) this.#want(node);
    return planRoutes(
      actual,
      Array.from(this.#routes.values(), ({ route }) => route),
    );
  }

  /** The changes of the kernel's routes for the nodes that have changed. Everything is set before anything is unset, as in a whole sync. */
  #planSome({ changed, get }: NodesView): RouteChange[] {
    const plan: RouteChange[] = [];
    const lost = [...this.#lost];
    this.#lost.clear();
    const before = Array.from(changed, (node) => {
      const found = get(node);
      const wanted = found === undefined ? undefined : this.#withKnownWays(found);
      return { node, wanted, prefixes: this.#prefixes.get(node) ?? [] };
    });
    for (const { node } of before) {
      this.#prefixes.delete(node);
      this.#skipped.delete(node);
    }
    for (const { wanted } of before) {
      if (wanted === undefined) continue;
      for (const route of this.#want(wanted)) plan.push({ op: "set", route });
    }
    for (const { node, prefixes } of before) {
      const kept = new Set(this.#prefixes.get(node));
      for (const prefix of prefixes) {
        const owned = this.#routes.get(prefix);
        // A prefix that has moved to another node has that node's route now.
        if (kept.has(prefix) || owned === undefined || owned.node !== node) continue;
        this.#routes.delete(prefix);
        plan.push({ op: "unset", route: owned.route });
      }
    }
    for (const prefix of lost) {
      const owned = this.#routes.get(prefix);
      if (owned !== undefined) plan.push({ op: "set", route: owned.route });
    }
    return plan;
  }

  /** `others`: the gateways of prefixes of which no sync has known a route. */
  #withKnownWays(node: RouterNode, others?: ReadonlyMap<string, IpAddress>): RouterNode {
    return withKnownWays(node, (prefix) => {
      const owned = this.#routes.get(prefix.toString());
      if (owned === undefined) return others?.get(prefix.toString());
      return owned.node === node.name ? owned.route.gateway : undefined;
    });
  }

  /** Stores the routes of a node; returns those that are new or changed. */
  #want(node: RouterNode): RouteSpec[] {
    const { routes, skipped } = routesToNodes([node], this.#options);
    const differing: RouteSpec[] = [];
    const prefixes: string[] = [];
    for (const route of routes) {
      const prefix = route.dst.toString();
      const known = this.#routes.get(prefix);
      prefixes.push(prefix);
      if (known !== undefined && known.node !== node.name && this.#prefixes.get(known.node)?.includes(prefix) === true)
        this.#isContested = true;
      if (known === undefined || !sameGateway(known.route, route)) differing.push(route);
      this.#routes.set(prefix, { node: node.name, route });
    }
    this.#prefixes.set(node.name, prefixes);
    if (skipped.length > 0) this.#skipped.set(node.name, skipped);
    return differing;
  }
}

function gatewaysOf(routes: readonly Route[]): ReadonlyMap<string, IpAddress> {
  return new Map(
    routes.flatMap(({ dst, gateway }) => (gateway === undefined ? [] : [[dst.toString(), gateway] as const])),
  );
}

function sameGateway(a: RouteSpec, b: RouteSpec): boolean {
  return a.gateway !== undefined && b.gateway !== undefined && a.gateway.equals(b.gateway);
}
