import { isDeepStrictEqual } from "node:util";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Endpoint, NodeInfo, ServicePort } from "../model/index.ts";
import { planService, type ServicePlan } from "../plan/index.ts";
import { endpointsOf, type SliceView } from "./slice.ts";

/** A service port with all its endpoints, for health checks, connection tracking and `explain`. */
export interface TrackedPort {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** The data of the node that plans depend on. Plans also depend on Services. */
export interface NodeContext {
  readonly node: NodeInfo;
  /** Addresses of this node in the family. */
  readonly nodeIPs: readonly IpAddress[];
}

/** Maximum of trigger times that are kept; later trigger times are not recorded until a sync succeeds. */
export const MAX_TRIGGERS = 10_000;

/**
 * Keeps the Services and slices of one family, and the Services whose plans may have changed. An object that is set again unchanged has
 * no effect.
 */
export class Tracker {
  readonly family: IpFamily;
  readonly #services = new Map<string, readonly ServicePort[]>();
  readonly #slices = new Map<string, SliceView>();
  /** Keys of the slices of each Service, sorted. */
  readonly #slicesOf = new Map<string, readonly string[]>();
  readonly #healthChecked = new Set<string>();
  #pending = new Set<string>();
  #triggers: number[] = [];
  #context: NodeContext;

  constructor(family: IpFamily, context: NodeContext) {
    this.family = family;
    this.#context = context;
  }

  /** True if some Service has to be planned again. */
  get isDirty(): boolean {
    return this.#pending.size > 0;
  }

  /** Services with a health check of their own (`spec.healthCheckNodePort`). */
  get healthChecked(): ReadonlySet<string> {
    return this.#healthChecked;
  }

  /** Services with ports in this family. */
  get services(): ReadonlyMap<string, readonly ServicePort[]> {
    return this.#services;
  }

  /** Sets the ports of a Service; an empty list: the Service was deleted, or has no rules. Returns true if the ports changed. */
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

  /** Sets a slice; `undefined`: the slice was deleted. `key`: `namespace/name`. Returns true if the slice changed. */
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

  /** Sets the node. Returns true if its name, zone or addresses changed: every Service is then pending. */
  setContext(context: NodeContext): boolean {
    if (isSame(describe(this.#context), describe(context))) return false;
    this.#context = context;
    this.markAll();
    return true;
  }

  /** Returns and clears the pending Services. `triggeredAt`: when their changes were made, milliseconds since the epoch. */
  take(): { readonly services: ReadonlySet<string>; readonly triggeredAt: readonly number[] } {
    const taken = { services: this.#pending, triggeredAt: this.#triggers };
    this.#pending = new Set();
    this.#triggers = [];
    return taken;
  }

  /** Stores trigger times again after a failed sync. The earliest trigger times are kept. */
  giveBack(triggeredAt: readonly number[]): void {
    this.#triggers = [...triggeredAt, ...this.#triggers].slice(0, MAX_TRIGGERS);
  }

  /** Makes all Services pending. */
  markAll(): void {
    for (const service of this.#services.keys()) this.#pending.add(service);
  }

  /** The plan of a Service; `undefined`: the Service has no ports. */
  plan(service: string): ServicePlan | undefined {
    const ports = this.ports(service);
    return ports.length === 0 ? undefined : planService(ports, this.#context.node, this.#context.nodeIPs);
  }

  /** The ports of a Service with their endpoints. */
  ports(service: string): TrackedPort[] {
    // The slices are sorted by name, so that all nodes, and a restarted proxy, decide alike if two slices differ.
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

/** Compares by JSON, which has addresses as text. */
function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
