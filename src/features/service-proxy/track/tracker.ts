import { isDeepStrictEqual } from "node:util";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Endpoint, NodeInfo, ServicePort } from "../model/index.ts";
import { planService, type ServicePlan } from "../plan/index.ts";
import { endpointsOf, type SliceView } from "./slice.ts";

/** A service port with all its endpoints, for whoever else asks: health checks, connection tracking, `explain`. */
export interface TrackedPort {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** What of the cluster's state counts for plans besides Services. */
export interface NodeContext {
  readonly node: NodeInfo;
  /** Of this node, in the family. */
  readonly nodeIPs: readonly IpAddress[];
}

/** So many trigger times are kept at most; later ones are not measured until a sync succeeds. */
export const MAX_TRIGGERS = 10_000;

/**
 * Services and slices of one family as they are told, and which Services' plans may have changed since they were last made. What is
 * told again unchanged changes nothing.
 */
export class Tracker {
  readonly family: IpFamily;
  readonly #services = new Map<string, readonly ServicePort[]>();
  readonly #slices = new Map<string, SliceView>();
  /** The keys of the slices of each Service that has any, in order. */
  readonly #slicesOf = new Map<string, readonly string[]>();
  readonly #healthChecked = new Set<string>();
  #pending = new Set<string>();
  #triggers: number[] = [];
  #context: NodeContext;

  constructor(family: IpFamily, context: NodeContext) {
    this.family = family;
    this.#context = context;
  }

  /** True when something is to be planned anew. */
  get isDirty(): boolean {
    return this.#pending.size > 0;
  }

  /** Services with a health check of their own (`spec.healthCheckNodePort`). */
  get healthChecked(): ReadonlySet<string> {
    return this.#healthChecked;
  }

  /** Of the Services with ports in this family. */
  get services(): ReadonlyMap<string, readonly ServicePort[]> {
    return this.#services;
  }

  /** A Service was added or changed; `ports` empty: it is gone, or not for us. True when that makes a difference. */
  setService(service: string, ports: readonly ServicePort[]): boolean {
    const before = this.#services.get(service) ?? [];
    if (isSame(before, ports)) return false;
    if (ports.length === 0) this.#services.delete(service);
    else this.#services.set(service, ports);
    if (ports.some(({ healthCheckNodePort }) => healthCheckNodePort > 0)) this.#healthChecked.add(service);
    else this.#healthChecked.delete(service);
    this.#pending.add(service);
    return true;
  }

  /** A slice was added or changed, `undefined`: it is gone. `key`: `namespace/name`. True when that makes a difference. */
  setSlice(key: string, slice: SliceView | undefined): boolean {
    const kept = slice?.family === this.family ? slice : undefined;
    const before = this.#slices.get(key);
    if (before === undefined && kept === undefined) return false;
    if (before !== undefined && kept !== undefined && isSameSlice(before, kept)) return false;
    if (before !== undefined && before.service !== kept?.service) this.#removeSlice(before.service, key);
    if (kept !== undefined) {
      this.#slices.set(key, kept);
      if (before?.service !== kept.service) {
        const keys = this.#slicesOf.get(kept.service);
        this.#slicesOf.set(kept.service, keys === undefined ? [key] : [...keys, key].sort());
      }
      this.#pending.add(kept.service);
      if (kept.triggeredAt !== undefined && this.#triggers.length < MAX_TRIGGERS) this.#triggers.push(kept.triggeredAt);
    }
    return true;
  }

  /** The node's name, zone or addresses: when they change, every Service is planned anew. */
  setContext(context: NodeContext): boolean {
    if (isSame(describe(this.#context), describe(context))) return false;
    this.#context = context;
    this.markAll();
    return true;
  }

  /** What is pending, which it then is no more; `triggeredAt`: since when the changes are under way, milliseconds since the epoch. */
  take(): { readonly services: ReadonlySet<string>; readonly triggeredAt: readonly number[] } {
    const taken = { services: this.#pending, triggeredAt: this.#triggers };
    this.#pending = new Set();
    this.#triggers = [];
    return taken;
  }

  /** The sync that took these trigger times failed: their changes are still under way. The earliest are kept. */
  giveBack(triggeredAt: readonly number[]): void {
    this.#triggers = [...triggeredAt, ...this.#triggers].slice(0, MAX_TRIGGERS);
  }

  /** All Services are pending. */
  markAll(): void {
    for (const service of this.#services.keys()) this.#pending.add(service);
  }

  /** The plan of a Service as it is now; `undefined`: there is none. */
  plan(service: string): ServicePlan | undefined {
    const ports = this.ports(service);
    return ports.length === 0 ? undefined : planService(ports, this.#context.node, this.#context.nodeIPs);
  }

  /** The ports of a Service with their endpoints; empty where there is none. */
  ports(service: string): TrackedPort[] {
    // By name: what two slices say differently is then decided alike on all nodes, and after a restart.
    const slices = (this.#slicesOf.get(service) ?? []).flatMap((key) => this.#slices.get(key) ?? []);
    return (this.#services.get(service) ?? []).map((port) => ({
      port,
      endpoints: endpointsOf(slices, port, this.#context.node.name),
    }));
  }

  #removeSlice(service: string, key: string): void {
    const left = (this.#slicesOf.get(service) ?? []).filter((one) => one !== key);
    if (left.length === 0) this.#slicesOf.delete(service);
    else this.#slicesOf.set(service, left);
    this.#slices.delete(key);
    this.#pending.add(service);
  }
}

function describe({ node, nodeIPs }: NodeContext): unknown {
  return [node.name, node.zone ?? null, nodeIPs.map(String)];
}

function isSameSlice(a: SliceView, b: SliceView): boolean {
  return a.service === b.service && isDeepStrictEqual([a.ports, a.endpoints], [b.ports, b.endpoints]);
}

/** Addresses are objects whose text tells them apart. */
function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
