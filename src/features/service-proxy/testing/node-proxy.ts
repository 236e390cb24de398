/** A node's proxy without watches: tests set the API's objects, for both families at once. */
import { systemClock } from "#base/clock";
import type { Cidr, IpAddress, IpFamily } from "#base/ip";
import { type Logger, nullLogger } from "#base/log";
import { type ConntrackPort, openConntrack } from "#kernel/conntrack";
import type { EndpointSlice, Service } from "#kube/client";
import { DataPlane, GenerationTracker, type SyncReport } from "../dataplane/index.ts";
import type { AddressJudge } from "../plan/index.ts";
import { FamilyProxy } from "../run/index.ts";
import { portsOf, sliceView, Tracker } from "../track/index.ts";
import type { Bed } from "./bed.ts";
import { addressesOf, NODE, ruleOptions } from "./fixture.ts";

const FAMILIES = [4, 6] as const;
/** A sync that has not ended after this time, in milliseconds, has failed. */
const SYNC_MS = 30_000;

/** `fullSyncMs` as in `FamilyProxyOptions`; the default logger is silent. */
export interface NodeProxyOptions {
  /** Decides about external addresses. Default: Services get all of them. */
  readonly judge?: AddressJudge;
  readonly fullSyncMs?: number;
  readonly log?: Logger;
}

/** From objects to the kernel as the program does it: tracker, plan, sync, connection tracking. Disposing ends it. */
export class NodeProxy implements AsyncDisposable {
  readonly #families: readonly OneFamily[];
  readonly #conntrack: ConntrackPort;
  readonly #stop = new AbortController();
  readonly #running: Promise<unknown>;

  private constructor(bed: Bed, options: NodeProxyOptions = {}) {
    this.#conntrack = openConntrack(bed.netns("node"));
    const generations = new GenerationTracker(bed.elements);
    this.#families = FAMILIES.map(
      (family) => new OneFamily(family, bed, { conntrack: this.#conntrack, generations }, options),
    );
    this.#running = Promise.all(this.#families.map(({ proxy }) => proxy.run({ signal: this.#stop.signal })));
  }

  /** Opens a proxy on the bed's node, after removing its tables. */
  static async open(bed: Bed, options: NodeProxyOptions = {}): Promise<NodeProxy> {
    const proxy = new NodeProxy(bed, options);
    for (const { plane } of proxy.#families) await plane.remove();
    return proxy.#begin();
  }

  /** Opens a proxy as after a restart: the tables exist, and these are the first objects. */
  static async startAgain(
    bed: Bed,
    services: readonly Service[],
    slices: readonly EndpointSlice[],
  ): Promise<NodeProxy> {
    const proxy = new NodeProxy(bed);
    for (const service of services) proxy.#setService(service);
    for (const slice of slices) proxy.#setSlice(slice);
    return proxy.#begin();
  }

  /** Number of elements written and deleted until now. */
  get changes(): number {
    return this.#families.reduce((sum, { changes }) => sum + changes, 0);
  }

  /** The `address port` that answers each tracked UDP flow towards a port, of any address or of one. */
  udpFlows(family: IpFamily, dstPort: number, dst?: IpAddress): readonly string[] {
    const entries = this.#conntrack.list({ family, protocol: 17, original: { dst, dstPort } });
    return entries.map(({ reply }) => `${reply.src} ${reply.srcPort ?? 0}`);
  }

  /** As `DataPlane.countAffinity`. */
  async countAffinity(family: IpFamily): Promise<number | undefined> {
    return await this.#families.find((one) => one.family === family)?.plane.countAffinity({});
  }

  /** Adds or changes Services; resolves when the kernel has them. */
  async set(...services: readonly Service[]): Promise<void> {
    for (const service of services) this.#setService(service);
    await this.settled();
  }

  async setSlices(...slices: readonly EndpointSlice[]): Promise<void> {
    for (const slice of slices) this.#setSlice(slice);
    await this.settled();
  }

  /** Sets both in one sync, slices first. */
  async setBoth(service: Service, ...slices: readonly EndpointSlice[]): Promise<void> {
    for (const slice of slices) this.#setSlice(slice);
    await this.set(service);
  }

  /** The key is a name in `ns`, or `namespace/name`. */
  async remove(...names: readonly string[]): Promise<void> {
    for (const name of names) for (const { tracker } of this.#families) tracker.setService(keyOf(name), []);
    await this.settled();
  }

  async removeSlices(...names: readonly string[]): Promise<void> {
    for (const name of names) for (const { tracker } of this.#families) tracker.setSlice(keyOf(name), undefined);
    await this.settled();
  }

  /** The node's label `topology.kubernetes.io/zone`. */
  async setZone(zone: string | undefined): Promise<void> {
    for (const { tracker, family } of this.#families)
      tracker.setContext({ node: { ...NODE, zone }, nodeIPs: [addressesOf(family).node] });
    await this.settled();
  }

  async setServiceCIDRs(cidrs: readonly Cidr[]): Promise<void> {
    for (const { proxy } of this.#families) proxy.setServiceCIDRs(cidrs);
    await this.settled();
  }

  /** The addresses of the node that take NodePorts, of either family. */
  async setNodePortAddresses(addresses: readonly IpAddress[]): Promise<void> {
    for (const { proxy, family } of this.#families) {
      const own = addresses.filter((address) => address.family === family);
      proxy.setNodePortAddresses(own, (address) => own.some((one) => one.equals(address)));
    }
    await this.settled();
  }

  /** Repairs the tables, as after changes by other programs. */
  async repair(): Promise<void> {
    for (const { proxy } of this.#families) proxy.repair();
    await this.settled();
  }

  /** Resolves when the kernel has all changes, and stale flows are deleted. Rejects if a sync or a check of flows failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#families.map((family) => family.settled()));
  }

  async #begin(): Promise<this> {
    for (const { proxy } of this.#families) proxy.open();
    await this.settled();
    return this;
  }

  #setService(service: Service): void {
    const name = `${service.metadata.namespace}/${service.metadata.name}`;
    for (const { tracker, family } of this.#families)
      tracker.setService(name, portsOf(service, family, { allowExternalIPs: true }));
  }

  #setSlice(slice: EndpointSlice): void {
    const key = `${slice.metadata.namespace}/${slice.metadata.name}`;
    for (const { tracker } of this.#families) tracker.setSlice(key, sliceView(slice));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#conntrack[Symbol.dispose]();
  }
}

const keyOf = (name: string): string => (name.includes("/") ? name : `ns/${name}`);

class OneFamily {
  readonly family: IpFamily;
  readonly tracker: Tracker;
  readonly plane: DataPlane;
  readonly proxy: FamilyProxy;
  readonly #waiting: { readonly sync: number; readonly done: PromiseWithResolvers<void> }[] = [];
  /** Syncs that have begun, and the last one that has succeeded. */
  #started = 0;
  #synced = 0;
  changes = 0;

  constructor(
    family: IpFamily,
    bed: Bed,
    { conntrack, generations }: { readonly conntrack: ConntrackPort; readonly generations: GenerationTracker },
    { fullSyncMs, log = nullLogger, judge }: NodeProxyOptions,
  ) {
    const { node, serviceCIDR } = addressesOf(family);
    const { nft, elements } = bed;
    this.family = family;
    this.tracker = new Tracker(family, { node: NODE, nodeIPs: [node] }, { judge });
    this.plane = new DataPlane(
      { nft, elements, generations, clock: systemClock, log: nullLogger },
      { ...ruleOptions(family), tableName: "kube-proxy" },
    );
    const observer = {
      started: () => {
        this.#started += 1;
      },
      synced: (_family: IpFamily, report: SyncReport) => {
        this.changes += report.changes;
        this.#synced = this.#started;
      },
      failed: (_family: IpFamily, error: Error) => this.#ended(this.#started, (done) => done.reject(error)),
      flowsDeleted: () => {
        if (!this.proxy.isCheckingFlows) this.#ended(this.#synced, (done) => done.resolve());
      },
      flowsFailed: (_family: IpFamily, error: Error) => this.#ended(this.#synced, (done) => done.reject(error)),
    };
    const deps = { tracker: this.tracker, plane: this.plane, conntrack, observer, clock: systemClock, log };
    this.proxy = new FamilyProxy(deps, {
      minSyncMs: 0,
      syncMs: 1000,
      ...(fullSyncMs === undefined ? {} : { fullSyncMs }),
    });
    this.proxy.setServiceCIDRs([serviceCIDR]);
    this.proxy.setNodePortAddresses([node], (address) => address.equals(node));
  }

  /** A sync that begins from now on has succeeded, and the flows have been checked after it. */
  async settled(): Promise<void> {
    const done = Promise.withResolvers<void>();
    this.#waiting.push({ sync: this.#started + 1, done });
    const late = setTimeout(() => done.reject(new Error(`no sync of IPv${this.family} in ${SYNC_MS} ms`)), SYNC_MS);
    this.proxy.request();
    await done.promise.finally(() => clearTimeout(late));
  }

  #ended(sync: number, settle: (done: PromiseWithResolvers<void>) => void): void {
    while ((this.#waiting[0]?.sync ?? Number.POSITIVE_INFINITY) <= sync) {
      const waiting = this.#waiting.shift();
      if (waiting !== undefined) settle(waiting.done);
    }
  }
}
