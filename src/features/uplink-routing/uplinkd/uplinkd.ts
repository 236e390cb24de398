import { Dirty, sleep, TaskGroup, untilAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Health, type HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import { keepSocket } from "#base/unix-socket";
import type { ConfigSource, Evidence, Settings, Snapshot, SnapshotSource, Uplink } from "#base/uplink-model";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import { serveControl } from "../control/index.ts";
import { Anchors, ownMark } from "../guard/index.ts";
import { type RoutingMarks, type UplinkTables, wantRouting } from "../routing/index.ts";
import { type KernelListing, makeSnapshot, type ResolverData, readKernel, readResolverData } from "../state/index.ts";
import { localFault, openProber, type Prober, UplinkHealth, type UplinkHealthState } from "../uplink-health/index.ts";
import { UplinkdError } from "./errors.ts";
import { addRouting, flushKernel, syncKernel } from "./kernel.ts";
import { Snapshots } from "./snapshots.ts";
import { followStatus, publishStatus } from "./status-report.ts";
import { warningsOf } from "./warnings.ts";

/** The kernel as it was after the last pass. */
interface Known {
  readonly listing: KernelListing;
  readonly tables: UplinkTables;
}

/** Interval of passes without an event, milliseconds (docs/spec/uplink-proxy.md#3.2). */
const RESYNC_MS = 60_000;
/** Pause before a pass, in milliseconds: events come in bursts. */
const COALESCE_MS = 20;
/**
 * The time between ending an uplink's tunnels and removing its rules, in milliseconds: another process may read the settings half a second
 * later.
 */
const RETIRE_MS = 1000;

export interface UplinkdDeps {
  readonly config: ConfigSource;
  readonly stack: Pick<NetStack, "links" | "addresses" | "routes" | "rules" | "sysctl">;
  readonly nft: Nft;
  /**
   * Follows links, addresses, routes and rules of the same namespace: calls back on each event. Usually
   * `(changed) => monitors.watch(netns, { links: true, addresses: true, routes: true, rules: true }, changed)`.
   */
  readonly follow: (changed: () => void) => AsyncDisposable;
  readonly health: HealthPart;
  /** The control socket. Default: its state is only logged. */
  readonly controlHealth?: HealthPart;
  readonly log: Logger;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  /** Default: the real prober. */
  readonly prober?: Prober;
  /** DNS servers of interfaces for which the settings have none. Default: the files of this host's software in /run. */
  readonly resolverOf?: (ifName: string, ifIndex: number) => ResolverData;
}

export interface UplinkdOptions {
  /** Path of the control socket (docs/spec/uplink-proxy.md#2.2). Default: none is served. */
  readonly controlSocket?: string;
  /** Another process programs the kernel and sends the probes; this process only reads the kernel's state. Default false. */
  readonly readOnly?: boolean;
  /**
   * File with the status of the uplinks, from the process that sends the probes to the one that only reads ({@link STATUS_REPORT_PATH}).
   * Default: none.
   */
  readonly statusReport?: string;
}

/**
 * The kernel's side of the uplink proxy (docs/spec/uplink-proxy.md#3): keeps per-uplink tables and rules, knows which uplinks work, and
 * makes the snapshots from which an uplink is chosen.
 */
export class Uplinkd {
  readonly #deps: UplinkdDeps;
  readonly #options: UplinkdOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #dirty: Dirty;
  readonly #statusChanged: Dirty;
  readonly #uplinkHealth: UplinkHealth;
  readonly #snapshots: Snapshots;
  #warned: ReadonlySet<string> = new Set();
  #known: Known | undefined;
  /** The settings of the last pass. */
  #synced: Settings | undefined;
  /** The sources that have their rules; see {@link sourceOf}. */
  #routed: ReadonlySet<string> = new Set();
  /** Those of them that the settings no longer have, with the time at which their tunnels were ended, monotonic milliseconds. */
  readonly #retired = new Map<string, number>();
  /** Marks that our objects may have, the newest last. */
  #marks: readonly RoutingMarks[] = [];
  readonly #anchors: Anchors;

  constructor(deps: UplinkdDeps, options: UplinkdOptions = {}) {
    this.#deps = deps;
    this.#options = options;
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#dirty = new Dirty(this.#clock);
    this.#statusChanged = new Dirty(this.#clock);
    this.#anchors = new Anchors(deps.stack, { log: this.#log });
    this.#snapshots = new Snapshots(() => this.#dirty.mark("snapshot"));
    const prober = deps.prober ?? openProber({ mark: () => this.#mark() });
    this.#uplinkHealth = new UplinkHealth({ ...deps, prober, changed: () => this.#onHealthChange() });
  }

  /** The snapshots that the proxy chooses from. Not ready before the first pass. */
  get snapshots(): SnapshotSource {
    return this.#snapshots;
  }

  /** Receives the outcomes of the proxy's traffic. */
  get evidence(): Evidence {
    return this.#uplinkHealth;
  }

  /** The settings in force. */
  get settings(): Settings {
    return this.#deps.config.current.settings;
  }

  /** The reason why the newest configuration, or a part of it, is not in force; for /healthz. */
  get configError(): string | undefined {
    return this.#deps.config.current.error;
  }

  /** The present uplinks, with tables and last probes; for /healthz. */
  get uplinks(): readonly Uplink[] {
    return this.#snapshots.current.uplinks;
  }

  /**
   * Runs until the signal aborts, then removes its kernel objects if `cleanupOnExit` is set. Rejects only for a bug: a failed change is
   * tried again.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { config, follow } = this.#deps;
    const mark = (): void => void this.#dirty.mark("settings or kernel");
    using _following = config.onChange(mark);
    await using _events = follow(mark);
    const tasks = new TaskGroup(signal);
    tasks.spawn((inner) => config.run({ signal: inner }));
    tasks.spawn((inner) => this.#keep(inner));
    tasks.spawn((inner) => this.#serveControl(inner));
    tasks.spawn((inner) => this.#shareStatus(inner));
    if (this.#options.readOnly !== true) tasks.spawn((inner) => this.#uplinkHealth.run({ signal: inner }));
    try {
      await tasks.wait();
    } finally {
      if (this.settings.routing.cleanupOnExit && this.#options.readOnly !== true) this.#cleanUp();
    }
  }

  /** Removes all our objects from the kernel; returns the number of changes. Throws the first refusal of the kernel. */
  flush(): number {
    return flushKernel(this.#deps, this.settings);
  }

  /** Keeps transparent mode from redirecting our own probes. */
  #mark(): number | undefined {
    const { transparent } = this.settings;
    return transparent.enabled ? ownMark(transparent) : undefined;
  }

  #cleanUp(): void {
    try {
      this.#log.info("removed all kernel objects of uplink routing", { changes: this.flush() });
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      this.#log.error("cannot remove all kernel objects of uplink routing", { error });
    }
  }

  /** If the socket cannot be opened, only agents are affected; opening is tried again. */
  async #serveControl(signal: AbortSignal): Promise<void> {
    const { controlSocket: path } = this.#options;
    if (path === undefined) return;
    const { controlHealth = new Health({ log: this.#log }).part("control-socket") } = this.#deps;
    const health = this.#uplinkHealth;
    const reportStatus: typeof health.reportStatus = (uplink, status) => health.reportStatus(uplink, status);
    const control = { uplinks: () => this.uplinks, reportStatus, log: this.#log };
    const bug = Promise.withResolvers<never>();
    await using _control = await keepSocket(() => serveControl(control, { path }), {
      path,
      health: controlHealth,
      log: this.#log,
      clock: this.#clock,
      onBug: bug.reject,
      mayStartWithout: true,
    });
    await Promise.race([untilAborted(signal), bug.promise]);
  }

  async #shareStatus(signal: AbortSignal): Promise<void> {
    const { statusReport: path, readOnly } = this.#options;
    if (path === undefined) return;
    const deps = { clock: this.#clock, log: this.#log };
    const health = this.#uplinkHealth;
    if (readOnly === true)
      await followStatus(
        {
          ...deps,
          reportStatus: (name, status) => health.followStatus(name, status),
          withdrawStatus: (name) => health.withdrawStatus(name),
        },
        { path, signal },
      );
    else
      await publishStatus({ ...deps, changed: this.#statusChanged, report: () => health.statuses }, { path, signal });
  }

  #keep(signal: AbortSignal): Promise<void> {
    const { health } = this.#deps;
    const sync = async (): Promise<number> => {
      await this.#retire(signal);
      return this.#sync();
    };
    const timing = { resyncMs: RESYNC_MS, gatherMs: COALESCE_MS, clock: this.#clock };
    return reconcile({ dirty: this.#dirty, sync, health, signal, ...timing });
  }

  /**
   * Ends the tunnels of uplinks and addresses that new settings no longer have, before their rules are removed: until then their packets
   * are still routed over them. So no packet leaves over another link afterwards. What comes in their place is routed at once. Settings may
   * change again during the wait: what they drop has a wait of its own.
   */
  async #retire(signal: AbortSignal): Promise<void> {
    for (;;) {
      const { settings, ready } = this.#deps.config.current;
      const isKnown = this.#synced === settings && this.#retired.size === 0;
      this.#synced = settings;
      if (!ready || isKnown) return;
      this.#publish();
      const left = sourcesOf(this.#snapshots.current);
      const now = this.#clock.monotonic();
      for (const source of this.#routed) {
        if (left.has(source)) this.#retired.delete(source);
        else if (!this.#retired.has(source)) this.#retired.set(source, now);
      }
      const waitMs = Math.max(0, ...this.#retired.values()) + RETIRE_MS - now;
      if (this.#retired.size === 0 || waitMs <= 0) return;
      this.#routeNew(settings);
      await sleep(waitMs, { signal, clock: this.#clock });
    }
  }

  /** Makes the routes and rules that settings add, and removes none. */
  #routeNew(settings: Settings): void {
    if (this.#options.readOnly === true || this.#known === undefined) return;
    this.#marks = [...this.#formerMarks(settings), settings.routing];
    try {
      addRouting(this.#deps.stack, settings);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      // The pass that follows the wait makes the rest, and reports what the kernel refuses.
      return;
    }
    this.#routed = new Set([...this.#routed, ...sourcesOf(this.#snapshotOf(settings, this.#known))]);
    this.#publish();
  }

  #formerMarks(settings: Settings): readonly RoutingMarks[] {
    return this.#marks.filter((marks) => !sameMarks(marks, settings.routing));
  }

  #sync(): number {
    const { settings, ready } = this.#deps.config.current;
    // Without a valid configuration it is unknown whether objects of an earlier run are still wanted: they stay.
    if (this.#options.readOnly === true || !ready) {
      this.#look(settings, wantRouting(settings, readKernel(this.#deps.stack)).tables);
      return 0;
    }
    const former = this.#formerMarks(settings);
    this.#marks = [...former, settings.routing];
    const { changes, tables, errors } = syncKernel(this.#deps, settings, {
      former,
      anchors: this.#anchors,
      log: this.#log,
    });
    this.#look(settings, tables);
    if (errors.length > 0) {
      const shown = errors.map(({ message }) => message).join("; ");
      throw new UplinkdError("partial", shown, { cause: new AggregateError(errors) });
    }
    this.#marks = [settings.routing];
    return changes;
  }

  /** Reads the kernel's state after the changes. */
  #look(settings: Settings, tables: UplinkTables): void {
    const listing = readKernel(this.#deps.stack);
    this.#known = { listing, tables };
    const snapshot = this.#snapshotOf(settings, this.#known);
    this.#routed = sourcesOf(snapshot);
    this.#retired.clear();
    const observed = snapshot.uplinks.map((uplink) => ({
      uplink,
      // The publisher of an uplink's state is responsible for it.
      fault: isPublished(settings, uplink) ? undefined : localFault(uplink, listing),
    }));
    this.#uplinkHealth.observe(settings, observed);
    this.#warn(
      warningsOf(
        this.#deps.stack.sysctl,
        observed.map(({ uplink }) => uplink),
        listing,
      ),
    );
    this.#publish();
  }

  #onHealthChange(): void {
    this.#statusChanged.mark("health");
    this.#publish();
  }

  #publish(): void {
    if (this.#known === undefined) return;
    const { settings } = this.#deps.config.current;
    const snapshot = this.#snapshotOf(settings, this.#known);
    // Another program, or another process of ours, has rules of its own pace.
    const isOurs = settings.routing.manage && this.#options.readOnly !== true;
    this.#snapshots.set(isOurs ? withoutRules(snapshot, this.#routed) : snapshot);
  }

  #snapshotOf(settings: Settings, known: Known): Snapshot {
    return makeSnapshot({
      settings,
      ready: this.#deps.config.current.ready,
      ...known,
      stateOf: (uplink): UplinkHealthState | undefined => this.#uplinkHealth.stateOf(uplink),
      resolverOf: this.#deps.resolverOf ?? readResolverData,
    });
  }

  /** Logs each warning once, until it no longer holds. */
  #warn(warnings: readonly string[]): void {
    for (const warning of warnings) if (!this.#warned.has(warning)) this.#log.warn(warning);
    this.#warned = new Set(warnings);
  }
}

function isPublished(settings: Settings, { name }: Uplink): boolean {
  return settings.uplinks.some((uplink) => uplink.name === name && uplink.published !== undefined);
}

/** The addresses that connections may use as their source, each with its interface. */
function sourcesOf({ uplinks }: Snapshot): ReadonlySet<string> {
  return new Set(uplinks.flatMap(({ ifName, addresses }) => addresses.map(({ address }) => sourceOf(ifName, address))));
}

/** Returns the part of an uplink that decides its rule: its cost and the rest change no rule. */
function sourceOf(ifName: string, address: IpAddress): string {
  return `${ifName} ${address}`;
}

/** Sources that new settings have are used once they have their rules: until then the main table would route them. */
function withoutRules(snapshot: Snapshot, routed: ReadonlySet<string>): Snapshot {
  const uplinks = snapshot.uplinks.map((uplink) => ({
    ...uplink,
    addresses: uplink.addresses.map((own) =>
      routed.has(sourceOf(uplink.ifName, own.address)) ? own : { ...own, isUsable: false },
    ),
  }));
  return { ...snapshot, uplinks };
}

function sameMarks(a: RoutingMarks, b: RoutingMarks): boolean {
  const keys = ["tableBase", "rulePriority", "localRulePriority", "kubeRulePriority", "routeProtocol"] as const;
  return keys.every((key) => a[key] === b[key]);
}
