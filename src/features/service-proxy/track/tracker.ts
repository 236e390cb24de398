import { createHash } from "node:crypto";
import { isEqual } from "#base/collections";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Endpoint, NodeInfo, Protocol, ServicePort } from "../model/index.ts";
import { type AddressJudge, type ClusterFacts, planService, type ServicePlan } from "../plan/index.ts";
import { canonical, externalOf, externalPortsOf, keyOf, nodePortsOf, portsIn, replace } from "./services-by-key.ts";
import { elementsOf, MAX_ELEMENTS, portsText } from "./size.ts";
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

/** Does what is computed on one Service: see `PassRecord` of `kube/suspects`. */
export interface ServiceSteps {
  /** `isThrown`: an error that is a fault of the program is passed on, and does not set the Service aside at once. No step is the last one of its Service. */
  step<T>(
    service: string,
    version: () => string,
    work: () => T,
    options: { readonly isLast: false; readonly isThrown: boolean },
  ): { readonly value: T } | { readonly waitMs: number };
  /** All that was computed on a Service is in the kernel. */
  endedWell(service: string, version: () => string): void;
}

/** Maximum of trigger times that are kept; later trigger times are not recorded until a sync succeeds. */
export const MAX_TRIGGERS = 10_000;

/**
 * Keeps the Services and slices of one family, and the Services whose plans may have changed. An object that is set again unchanged has
 * no effect.
 */
export class Tracker implements ClusterFacts {
  readonly family: IpFamily;
  /** Decides about external addresses; absent: Services get all of them. */
  readonly #judge: AddressJudge | undefined;
  readonly #steps: ServiceSteps | undefined;
  /** The Services that were found to be set aside, with the time after which each should be planned again, in milliseconds. At most as many as there are suspects. */
  #aside = new Map<string, number>();
  /** Services that need more elements than a table may have of one, and those of them that were not taken yet. Among {@link Tracker.services}. */
  readonly #tooLarge = new Set<string>();
  #newTooLarge = new Map<string, number>();
  /** The Services that claim each external address, by the address as text. */
  readonly #external = new Map<string, Set<string>>();
  /** The Services of each protocol and port: those that claim it at external addresses, and those that have it on nodes. */
  readonly #externalPorts = new Map<string, Set<string>>();
  readonly #nodePorts = new Map<string, Set<string>>();
  #claimed: AboutClaims | undefined;
  readonly #services = new Map<string, readonly ServicePort[]>();
  readonly #slices = new Map<string, SliceView>();
  /** Keys of the slices of each Service, sorted. */
  readonly #slicesOf = new Map<string, readonly string[]>();
  readonly #healthChecked = new Set<string>();
  #pending = new Set<string>();
  #triggers: number[] = [];
  #context: NodeContext;

  /** With `steps` a Service that is set aside has no ports, as if it was not there. */
  constructor(
    family: IpFamily,
    context: NodeContext,
    { judge, steps }: { readonly judge?: AddressJudge | undefined; readonly steps?: ServiceSteps | undefined } = {},
  ) {
    this.family = family;
    this.#context = context;
    this.#judge = judge;
    this.#steps = steps;
  }

  /** True if a Service claims an external address. */
  get hasExternal(): boolean {
    return this.#external.size > 0;
  }

  /** Makes the Services that claim an external address pending. Returns true if there are any. */
  markExternal(): boolean {
    for (const services of this.#external.values()) for (const service of services) this.#pending.add(service);
    return this.hasExternal;
  }

  isClusterIP(address: IpAddress): boolean {
    return this.#aboutClaims().clusterIPs.has(address.toString());
  }

  otherEndpoint(
    address: IpAddress,
    notOf: string,
    at?: { readonly protocol: Protocol; readonly port: number },
  ): string | undefined {
    const { slices: ofAddress, ports } = this.#aboutClaims();
    for (const [namespace, slices] of ofAddress.get(address.toString()) ?? [])
      if (namespace !== notOf && (at === undefined || slices.some((one) => portsIn(one, ports).has(keyOf(at)))))
        return namespace;
    return undefined;
  }

  nodePortOf(protocol: Protocol, port: number, notOf: string): string | undefined {
    for (const service of this.#nodePorts.get(`${protocol} ${port}`) ?? []) if (service !== notOf) return service;
    return undefined;
  }

  /** The Services that have ports on nodes. */
  get nodePortServices(): ReadonlySet<string> {
    return new Set(Array.from(this.#nodePorts.values(), (services) => [...services]).flat());
  }

  apiServerPorts(): ReadonlySet<number> {
    const slices = (this.#slicesOf.get(API_SERVER) ?? []).flatMap((key) => this.#slices.get(key) ?? []);
    return new Set(slices.flatMap(({ ports }) => ports.map(({ port }) => port)));
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
    if (portsText(before) === portsText(ports)) return false;
    replace(this.#external, service, externalOf(before), externalOf(ports));
    replace(this.#externalPorts, service, externalPortsOf(before), externalPortsOf(ports));
    this.#setNodePorts(service, nodePortsOf(before), nodePortsOf(ports));
    this.#claimed = undefined;
    if (ports.length === 0) {
      this.#services.delete(service);
      this.#tooLarge.delete(service);
      this.#judge?.forget(service);
    } else this.#services.set(service, ports);
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
    this.#claimed = undefined;
    for (const one of this.#external.size === 0 ? [] : [before, kept]) if (one !== undefined) this.#markClaimsAt(one);
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
    if (isEqual(describe(this.#context), describe(context))) return false;
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

  /** Stores trigger times again after a failed sync, and the Services that it has not planned. The earliest trigger times are kept. */
  giveBack(triggeredAt: readonly number[], unplanned: Iterable<string> = []): void {
    for (const service of unplanned) this.#pending.add(service);
    this.#triggers = [...triggeredAt, ...this.#triggers].slice(0, MAX_TRIGGERS);
  }

  /** Makes all Services pending. */
  markAll(): void {
    for (const service of this.#services.keys()) this.#pending.add(service);
  }

  /** The plan of a Service; `undefined`: the Service has no ports, is too large, or is set aside. */
  plan(service: string): ServicePlan | undefined {
    return this.#step(service, () => this.#plan(service), { isThrown: false })?.value;
  }

  /** The ports of a Service with their endpoints; none while it is set aside, and while it is too large. */
  ports(service: string): TrackedPort[] {
    return this.#step(service, () => this.#ports(service), { isThrown: false })?.value ?? [];
  }

  /**
   * Does further work on a Service as one that may end the process. Returns its value; `undefined`: the Service is set aside, and the work was not done. Errors of the work
   * are thrown.
   */
  recorded<T>(service: string, work: () => T): { readonly value: T } | undefined {
    return this.#step(service, work, { isThrown: true });
  }

  /** All that was computed on a Service is in the kernel: earlier ends of the process had another cause. */
  endedWell(service: string): void {
    this.#steps?.endedWell(service, () => this.#versionOf(service));
  }

  /** Returns and forgets the Services that were found to be set aside, with the time after which each should be planned again, in milliseconds. */
  takeAside(): ReadonlyMap<string, number> {
    const aside = this.#aside;
    if (aside.size > 0) this.#aside = new Map();
    return aside;
  }

  /** Returns and forgets the Services that were found to need more than `MAX_ELEMENTS` elements since the last call, with an upper bound for theirs. They have no ports. */
  takeTooLarge(): ReadonlyMap<string, number> {
    const found = this.#newTooLarge;
    if (found.size > 0) this.#newTooLarge = new Map();
    return found;
  }

  #step<T>(
    service: string,
    work: () => T,
    { isThrown }: { readonly isThrown: boolean },
  ): { readonly value: T } | undefined {
    if (this.#steps === undefined) return { value: work() };
    const done = this.#steps.step(service, () => this.#versionOf(service), work, { isLast: false, isThrown });
    if ("value" in done) return done;
    this.#aside.set(service, done.waitMs);
    return undefined;
  }

  /** Tells the objects of a Service from other states of them. */
  #versionOf(service: string): string {
    const versions = this.#slicesIn(service).map(({ metadata }) => metadata.resourceVersion);
    const text = JSON.stringify([portsText(this.#services.get(service) ?? []), versions]);
    return createHash("sha256").update(text).digest("base64url");
  }

  #plan(service: string): ServicePlan | undefined {
    const ports = this.#ports(service);
    const { node, nodeIPs } = this.#context;
    if (ports.length === 0) return undefined;
    return planService(ports, node, nodeIPs, (claim) => this.#judge?.judge(this.family, claim, this));
  }

  /** Notes whether the table could hold a Service, before its lists are multiplied. */
  #isTooLarge(service: string, ports: readonly ServicePort[], slices: readonly SliceView[]): boolean {
    const elements = elementsOf(ports, slices);
    if (elements <= MAX_ELEMENTS) {
      this.#tooLarge.delete(service);
      return false;
    }
    if (!this.#tooLarge.has(service)) this.#newTooLarge.set(service, elements);
    this.#tooLarge.add(service);
    return true;
  }

  #ports(service: string): TrackedPort[] {
    const slices = this.#slicesIn(service);
    const ports = this.#services.get(service) ?? [];
    if (this.#isTooLarge(service, ports, slices)) return [];
    return ports.map((port) => ({
      port,
      endpoints: endpointsOf(slices, port, this.#context.node.name),
    }));
  }

  /** Sorted by name, so that all nodes, and a restarted proxy, decide alike if two slices differ. */
  #slicesIn(service: string): SliceView[] {
    return (this.#slicesOf.get(service) ?? []).flatMap((key) => this.#slices.get(key) ?? []);
  }

  /** Returns the facts of claimed addresses by Services and slices. There are few such addresses, so one pass over all objects serves all claims until the next change. */
  #aboutClaims(): AboutClaims {
    if (this.#claimed !== undefined) return this.#claimed;
    const clusterIPs = new Set<string>();
    for (const [port] of this.#services.values()) {
      const text = String(port?.clusterIP);
      if (this.#external.has(text)) clusterIPs.add(text);
    }
    const slices = new Map<string, Map<string, SliceView[]>>();
    for (const slice of this.#slices.values()) {
      for (const { address } of slice.endpoints) {
        const text = canonical(address, this.family);
        if (!this.#external.has(text)) continue;
        const { namespace } = slice.metadata;
        const ofAddress = slices.get(text) ?? new Map<string, SliceView[]>();
        slices.set(text, ofAddress);
        const ofNamespace = ofAddress.get(namespace);
        if (ofNamespace === undefined) ofAddress.set(namespace, [slice]);
        else if (ofNamespace.at(-1) !== slice) ofNamespace.push(slice);
      }
    }
    this.#claimed = { clusterIPs, slices, ports: new Map() };
    return this.#claimed;
  }

  /** A port of nodes came or went: who claims it at a node's address may get or lose that. */
  #setNodePorts(service: string, before: ReadonlySet<string>, after: ReadonlySet<string>): void {
    replace(this.#nodePorts, service, before, after);
    for (const port of [...before, ...after]) {
      if (before.has(port) && after.has(port)) continue;
      for (const claimant of this.#externalPorts.get(port) ?? []) this.#pending.add(claimant);
    }
  }

  /** An endpoint came or went: who claims its address may get or lose it. */
  #markClaimsAt({ service, endpoints }: SliceView): void {
    if (service === API_SERVER) this.markExternal();
    for (const { address } of endpoints)
      for (const claimant of this.#external.get(canonical(address, this.family)) ?? []) this.#pending.add(claimant);
  }

  #removeSlice(service: string, key: string): void {
    const left = (this.#slicesOf.get(service) ?? []).filter((one) => one !== key);
    if (left.length === 0) this.#slicesOf.delete(service);
    else this.#slicesOf.set(service, left);
    this.#slices.delete(key);
    this.#pending.add(service);
  }
}

/** The known facts of the addresses that Services claim, as text. */
interface AboutClaims {
  readonly clusterIPs: ReadonlySet<string>;
  /** The slices that have an endpoint at an address, by address and namespace. Their ports are not here, since each of their endpoints has all of them. */
  readonly slices: ReadonlyMap<string, ReadonlyMap<string, readonly SliceView[]>>;
  /** The ports of these slices, by {@link keyOf}, as far as they were asked for. */
  readonly ports: Map<SliceView, ReadonlySet<string>>;
}

/** The Service of the API servers. */
const API_SERVER = "default/kubernetes";

function describe({ node, nodeIPs }: NodeContext): unknown {
  return [node.name, node.zone ?? null, nodeIPs.map(String)];
}

function isSameSlice(a: SliceView, b: SliceView): boolean {
  return a.service === b.service && isEqual([a.ports, a.endpoints], [b.ports, b.endpoints]);
}
