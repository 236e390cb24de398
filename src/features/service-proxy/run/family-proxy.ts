import { Backoff, Deferred, TaskGroup, TimeSlice } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { Cidr, IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { Loop, progressText } from "#base/reconcile";
import type { ConntrackPort } from "#kernel/conntrack";
import type { DataPlane, SyncReport } from "../dataplane/index.ts";
import { addressBytes, frontEndId, MAX_TIMEOUTS, type ServicePlan, WantedTable } from "../plan/index.ts";
import type { TrackedPort, Tracker } from "../track/index.ts";
import { type LostClaim, LostClaims } from "./lost-claims.ts";
import { type FlowsObserver, StaleFlows } from "./stale-flows.ts";

/** Planning yields to the event loop after this time, milliseconds (docs/spec/service-proxy.md#1.1). */
const SLICE_MS = 8;

/** Observes syncs and the checks of flows that follow them; methods must not throw. */
export interface SyncObserver extends FlowsObserver {
  /** A change waits to be synced. */
  queued?(family: IpFamily): void;
  started?(family: IpFamily): void;
  synced?(
    family: IpFamily,
    report: SyncReport & { readonly durationMs: number; readonly triggeredAt: readonly number[] },
    /** The number of this sync, and the revision that it has applied, as text. */
    progress?: string,
  ): void;
  failed?(family: IpFamily, error: ExpectedError): void;
  /** Called when a claim is lost, once until the claim is won again. */
  claimLost?(family: IpFamily, claim: LostClaim): void;
  /** A Service needs more elements than a table may have of one, and has no rules. Called once until it is smaller again. */
  tooLarge?(family: IpFamily, found: { readonly service: string; readonly elements: number }): void;
  /** Number of claims that are lost now. */
  lostClaims?(family: IpFamily, claims: number): void;
}

export interface FamilyProxyDeps {
  readonly tracker: Tracker;
  readonly plane: DataPlane;
  /** Absent: stale UDP flows are not deleted. */
  readonly conntrack?: ConntrackPort | undefined;
  readonly observer?: SyncObserver;
  readonly log: Logger;
  readonly clock: Clock;
}

export interface FamilyProxyOptions {
  readonly minSyncMs: number;
  readonly syncMs: number;
  /** Longest time between two listings of the kernel, each of which everything is compared with, in milliseconds. Default an hour. */
  readonly fullSyncMs?: number;
}

const HOUR_MS = 3_600_000;
/** Maximum of addresses that took NodePorts once; the oldest ones are forgotten. */
const MAX_FORMER = 1024;
/**
 * Number of syncs that may follow each other without a pause. A new Service comes in several events, which must not wait for each other:
 * the Service, its slices, their endpoints.
 */
const SYNC_BURST = 4;
/** Pauses after the first three failures in a row, in milliseconds; later pauses are `syncMs` (docs/spec/service-proxy.md#2.9). */
const FIRST_RETRIES_MS = [100, 1000, 5000];

/**
 * Keeps one family's table in sync with the cluster's Services. Writes nothing before {@link FamilyProxy.open}, when all inputs have been
 * read once (docs/spec/service-proxy.md#2.9).
 */
export class FamilyProxy {
  readonly family: IpFamily;
  readonly tracker: Tracker;
  readonly wanted = new WantedTable();
  readonly plane: DataPlane;
  readonly #deps: FamilyProxyDeps;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #options: FamilyProxyOptions;
  readonly #loop: Loop;
  /** Resolved when all inputs have been read. */
  readonly #inputs = new Deferred();
  readonly #lostClaims = new LostClaims();
  readonly #flows: StaleFlows | undefined;
  #nodePortAddresses: readonly IpAddress[] = [];
  #isNodePortAddress: (address: IpAddress) => boolean = () => false;
  /** Addresses that took NodePorts, and do not any more. */
  readonly #formerAddresses = new Set<string>();
  #serviceCIDRs: readonly Cidr[] = [];
  #isOpen = false;
  #isBusy = false;
  /** The next sync lists the kernel, and compares everything. */
  #isListingDue = true;
  #hasSynced = false;
  #roundsTimeouts = false;
  #onRepaired: ((changes: number) => void) | undefined;
  #lastListedAt = 0;
  #isCleanupScheduled = false;
  /**
   * Services whose UDP flows are checked after the next successful sync; `undefined`: all. That is so while packets may have passed untranslated whatever
   * their Service: before the first sync, after a failed one, and until an address takes NodePorts.
   */
  #flowsPending: Set<string> | undefined;
  /** Services that were planned since the last successful sync. */
  #planned = new Set<string>();

  constructor(deps: FamilyProxyDeps, options: FamilyProxyOptions) {
    this.#deps = deps;
    this.#options = options;
    this.tracker = deps.tracker;
    this.family = deps.tracker.family;
    this.plane = deps.plane;
    this.#log = deps.log;
    this.#clock = deps.clock;
    const maxMs = Math.min(options.fullSyncMs ?? HOUR_MS, HOUR_MS);
    this.#loop = new Loop({
      everyMs: maxMs,
      inputs: { tracker: { synced: this.#inputs.promise } },
      startsIdle: true,
      pace: { minMs: options.minSyncMs, burst: SYNC_BURST },
      backoff: new Backoff({ firstMs: FIRST_RETRIES_MS, initialMs: options.syncMs, maxMs: options.syncMs, jitter: 0 }),
      // A sync reports its failure itself.
      onFailure: () => undefined,
      clock: this.#clock,
    });
    this.#flows = deps.conntrack === undefined ? undefined : this.#staleFlows(deps.conntrack);
  }

  /** True while UDP flows wait for a check, or are being checked. Syncs do not wait for that. */
  get isCheckingFlows(): boolean {
    return this.#flows?.isPending === true;
  }

  /** True while a sync is running. */
  get isBusy(): boolean {
    return this.#isBusy;
  }

  /** True if a sync has succeeded: the kernel's table is what this process wants. */
  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** Lets syncs begin. To be called when all inputs have been read. */
  open(): void {
    this.#isOpen = true;
    this.#inputs.resolve();
    this.request();
  }

  /** Requests a sync. To be called when something changed in the tracker. */
  request(): void {
    if (!this.#isOpen) return;
    this.#deps.observer?.queued?.(this.family);
    this.#loop.wake("change");
  }

  /** Lists the kernel and repairs it. `done` receives the number of elements that differed without a request. */
  repair(done?: (changes: number) => void): void {
    this.plane.distrust();
    this.#isListingDue = true;
    this.#onRepaired = done;
    this.request();
  }

  /**
   * Sets the addresses in the table that take NodePorts; none if the rules let all local addresses do so. `isNodePortAddress` tells which flows go to
   * a NodePort.
   */
  setNodePortAddresses(addresses: readonly IpAddress[], isNodePortAddress: (address: IpAddress) => boolean): void {
    // They are compared by text: there are few.
    for (const one of this.#nodePortAddresses) keepFormer(this.#formerAddresses, String(one));
    for (const one of addresses) this.#formerAddresses.delete(String(one));
    this.#nodePortAddresses = addresses;
    this.#isNodePortAddress = isNodePortAddress;
    this.#flowsPending = undefined;
    this.request();
  }

  /** To be called when other addresses take NodePorts by the rules that the table has: flows of before may have passed untranslated. */
  localAddressesChanged(): void {
    // Before the first sync, and after a failed one, the flows of all Services are checked anyway.
    if (this.#flowsPending !== undefined) this.#flows?.request(undefined);
  }

  setServiceCIDRs(cidrs: readonly Cidr[]): void {
    this.#serviceCIDRs = cidrs.filter(({ family }) => family === this.family);
    this.request();
  }

  /** Syncs, and checks flows, until the signal aborts. Rejects only because of a bug. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup(signal);
    group.spawn((at) => this.#loop.run((pass) => this.#sync(at, progressText(pass)), { signal: at }));
    const flows = this.#flows;
    if (flows !== undefined) group.spawn((at) => flows.run({ signal: at }));
    await group.wait();
  }

  async #sync(signal: AbortSignal, progress: string): Promise<void> {
    const { observer } = this.#deps;
    const startedAt = this.#clock.monotonic();
    this.#isBusy = true;
    observer?.started?.(this.family);
    const { services, triggeredAt } = this.tracker.take();
    const unplanned = new Set(services);
    try {
      await this.#plan(unplanned, signal);
      this.#flows?.endpointsChanged();
      for (const claim of this.#lostClaims.take(this.wanted)) observer?.claimLost?.(this.family, claim);
      observer?.lostClaims?.(this.family, this.#lostClaims.count);
      this.#reportRounding();
      const isHourly = !this.#isListingDue && startedAt - this.#lastListedAt >= (this.#options.fullSyncMs ?? HOUR_MS);
      // Without a listing, what is compared is only what this process remembers.
      if (isHourly) this.plane.distrust();
      const full = this.#isListingDue || isHourly;
      const wanted = {
        services: this.wanted,
        nodePortIPs: new Set(this.#nodePortAddresses.map(addressBytes)),
        serviceCIDRs: this.#serviceCIDRs,
        recorded: <T>(service: string, work: () => T) => this.tracker.recorded(service, work),
      };
      // Taken together with the addresses: those that come during this sync need a check after the next one.
      const flows = this.#flowsPending;
      this.#flowsPending = new Set();
      const planned = this.#planned;
      const report = await this.plane.sync(wanted, { signal, full });
      this.#planned = new Set();
      for (const service of planned) this.tracker.endedWell(service);
      this.#planAsideLater();
      if (full) {
        this.#isListingDue = false;
        this.#hasSynced = true;
        this.#lastListedAt = startedAt;
        this.#onRepaired?.(report.drift);
        this.#onRepaired = undefined;
      }
      if (isHourly && report.drift > 0)
        this.#log.warn("the proxy's nftables table differed from what was written; the differences are repaired", {
          family: this.family,
          changes: report.drift,
        });
      // Until the repair, packets of any Service may have passed untranslated, and a flow keeps what its first packet got.
      const removed = this.plane.takeRemovedUdp();
      this.#flows?.request(report.isRepair ? undefined : flows, removed);
      this.#scheduleCleanup();
      const durationMs = this.#clock.monotonic() - startedAt;
      observer?.synced?.(this.family, { ...report, durationMs, triggeredAt }, progress);
    } catch (error) {
      this.#isListingDue = true;
      this.#flowsPending = undefined;
      this.tracker.giveBack(triggeredAt, unplanned);
      if (!signal.aborted && error instanceof ExpectedError) {
        this.#log.error("sync failed; the next sync compares everything", {
          family: this.family,
          error: describeError(error),
        });
        observer?.failed?.(this.family, error);
      }
      throw error;
    } finally {
      this.#isBusy = false;
    }
  }

  /** Plans the Services, and removes each from the set when its plan is wanted. */
  async #plan(services: Set<string>, signal: AbortSignal): Promise<void> {
    const slice = new TimeSlice({ clock: this.#clock, lengthMs: SLICE_MS });
    for (const service of services) {
      // Planned inside, too: a fault in what is wanted of a Service is that Service's.
      const done = this.tracker.recorded(service, () => this.#want(service, this.tracker.plan(service)));
      if (done === undefined) this.#want(service, undefined);
      this.#planned.add(service);
      services.delete(service);
      if (slice.isOver) await slice.yield();
      signal.throwIfAborted();
    }
    this.#planAsideLater();
    for (const [service, elements] of this.tracker.takeTooLarge())
      this.#deps.observer?.tooLarge?.(this.family, { service, elements });
  }

  /** Replaces what is wanted of a Service. */
  #want(service: string, plan: ServicePlan | undefined): void {
    // Another Service may get a front end that this Service releases, together with flows to endpoints of this Service.
    for (const one of [service, ...this.wanted.rivals(service)]) this.#flowsPending?.add(one);
    this.wanted.set(service, plan);
    for (const one of this.wanted.rivals(service)) this.#flowsPending?.add(one);
  }

  #planAsideLater(): void {
    for (const [service, waitMs] of this.tracker.takeAside()) this.#planLater(service, waitMs);
  }

  /** Plans a Service that is set aside again after its time. */
  #planLater(service: string, waitMs: number): void {
    const again = (): void => {
      this.tracker.giveBack([], [service]);
      this.request();
    };
    this.#clock.after(waitMs, again, { unref: true });
  }

  /** Requests a sync for the time at which the table has chains to delete. It has no change, so that nobody waits for it. */
  #scheduleCleanup(): void {
    const at = this.plane.nextCleanupAt;
    if (at === undefined || this.#isCleanupScheduled) return;
    this.#isCleanupScheduled = true;
    const cleanUp = (): void => {
      this.#isCleanupScheduled = false;
      this.#loop.wake("clean up");
    };
    this.#clock.after(Math.max(0, at - this.#clock.monotonic()), cleanUp, { unref: true });
  }

  /** Logs the begin and the end of rounding of affinity timeouts, once each. */
  #reportRounding(): void {
    const { roundsTimeouts } = this.wanted;
    if (roundsTimeouts === this.#roundsTimeouts) return;
    this.#roundsTimeouts = roundsTimeouts;
    const about = { family: this.family, max: MAX_TIMEOUTS };
    if (roundsTimeouts)
      this.#log.warn("Services have too many different timeouts of session affinity; some are rounded up", {
        ...about,
        fix: "find the Services whose sessionAffinityConfig.clientIP.timeoutSeconds differ without need",
      });
    else this.#log.info("timeouts of session affinity are exact again", about);
  }

  #staleFlows(conntrack: ConntrackPort): StaleFlows {
    return new StaleFlows({
      family: this.family,
      conntrack,
      portsOf: (services) => this.#portsOf(services ?? this.tracker.services.keys()),
      holds: ({ namespace, name }, frontEnd) => this.wanted.holds(`${namespace}/${name}`, frontEndId(frontEnd)),
      isHeld: (id) => this.wanted.frontEnd(id) !== undefined,
      isNodePortAddress: (address) => this.#isNodePortAddress(address),
      isFormerNodePortAddress: (address) => this.#formerAddresses.has(String(address)),
      observer: this.#deps.observer,
      log: this.#log,
      clock: this.#clock,
    });
  }

  *#portsOf(services: Iterable<string>): Generator<TrackedPort> {
    // Most Services have no UDP port, and their endpoints need not be merged.
    for (const service of services) {
      const isUdp = this.tracker.services.get(service)?.some(({ protocol }) => protocol === "UDP") === true;
      if (isUdp) yield* this.tracker.ports(service);
    }
  }
}

function keepFormer(former: Set<string>, address: string): void {
  former.delete(address);
  former.add(address);
  if (former.size <= MAX_FORMER) return;
  const [oldest] = former;
  if (oldest !== undefined) former.delete(oldest);
}
