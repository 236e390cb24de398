import type { SecureContext } from "node:tls";
import { sleep, TaskGroup, untilAborted } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import type { Readiness } from "#base/health";
import type { Logger } from "#base/log";
import { createRegistry, type Registry } from "#base/metrics";
import { repeat } from "#base/reconcile";
import type { Evidence, ListenerSettings, Settings, SnapshotSource } from "#base/uplink-model";
import { type TcpStreams, type TcpStreamsKind, tcpStreams } from "#kernel/reactor";
import { SharedText } from "#wire/http-endpoint";
import type { Query } from "../dns/index.ts";
import { Engine } from "../engine/index.ts";
import { TunnelLimiter } from "../front/index.ts";
import { ListenerSet } from "../listen/index.ts";
import type { PenaltyEvent } from "../select/index.ts";
import { Counters, healthReport, MetricsFile, type StatsEvent, uplinkProxyMetrics } from "../stats/index.ts";
import type { Page, StartThreads, Threads } from "./threads.ts";

/** Interval at which bytes are reported, in milliseconds. */
const TICK_MS = 1000;
/** Interval at which the proxy checks whether the tunnels have ended while it drains, in milliseconds. */
const DRAIN_POLL_MS = 100;
/** Destroyed sockets close within this time, in milliseconds. */
const CLOSE_MS = 1000;

/** Token and certificate of the listener for pods. */
export interface PodSecrets {
  /** The tokens that are accepted now, the newest first; `undefined` until they are loaded. */
  readonly tokens: readonly string[] | undefined;
  readonly secureContext: SecureContext | undefined;
  /** True once the certificate was published to clients: TLS is then required (docs/spec/uplink-proxy.md#9.1.2). */
  readonly isPublished?: boolean;
}

/** Dependencies of the proxy. */
export interface UplinkProxyDeps {
  readonly snapshots: SnapshotSource;
  readonly evidence: Evidence;
  readonly log: Logger;
  readonly clock: Clock;
  /** Needed if a pod listener requires tokens or TLS. */
  readonly secrets?: PodSecrets;
  /** Additional keys for /healthz: `configError`, `env`. */
  readonly health?: () => Readonly<Record<string, unknown>>;
  /** The answer of GET /readyz. Default: the answer says whether the snapshot is ready. */
  readonly readiness?: (options: { readonly isVerbose: boolean }) => Readiness;
  /** Makes the listening descriptor of a special listener, such as that of transparent mode. */
  readonly openListener?: (listener: ListenerSettings) => number;
  /** Starts further threads if the settings want them. Default: there is one thread. */
  readonly startThreads?: StartThreads;
  /** Default: c-ares. */
  readonly query?: Query;
}

/** Settings of the process, which no configuration file changes. */
export interface UplinkProxyOptions {
  readonly version: string;
  /** SO_MARK of sockets to destinations, so that transparent mode lets them pass. */
  readonly mark?: number;
  /** Default: over epoll. */
  readonly streams?: TcpStreamsKind;
  /** Default: /etc/hosts. */
  readonly hostsPath?: string;
  /** EVE's counters are published here; absent: they are not published. */
  readonly metricsMapPath?: string;
}

/** The proxy: it accepts clients and opens tunnels over the cheapest uplink that works (docs/spec/uplink-proxy.md#4 to #9, #13, #14). */
export class UplinkProxy {
  readonly #deps: UplinkProxyDeps;
  readonly #options: UplinkProxyOptions;
  readonly #clock: Clock;
  readonly #counters: Counters;
  readonly #engine: Engine;
  readonly #limiter: TunnelLimiter;
  readonly #startedAt: number;
  readonly #streams: TcpStreams;
  readonly #listeners: ListenerSet;
  readonly #registry: Registry = createRegistry();
  readonly #exposition: SharedText;
  readonly #metricsFile: MetricsFile | undefined;
  /** When bytes of an uplink were last reported as evidence, by name: at most once a second. */
  readonly #toldAt = new Map<string, number>();
  #threads: Threads | undefined;
  #settings: Settings;
  #group: TaskGroup | undefined;

  constructor(deps: UplinkProxyDeps, settings: Settings, options: UplinkProxyOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#settings = settings;
    this.#clock = deps.clock;
    this.#startedAt = this.#clock.monotonic();
    const exposition = (): Promise<string> => {
      this.#engine.flush();
      return this.#registry.metrics();
    };
    this.#exposition = new SharedText(exposition, { clock: this.#clock });
    this.#streams = tcpStreams(options.streams ?? "epoll");
    this.#counters = new Counters(this.#clock);
    this.#limiter = new TunnelLimiter(() => this.#settings.limits);
    this.#engine = new Engine({
      clock: this.#clock,
      log: deps.log,
      settings: () => this.#settings,
      snapshots: deps.snapshots,
      evidence: deps.evidence,
      record: (event) => this.#record(event),
      limiter: this.#limiter,
      tokens: () => deps.secrets?.tokens,
      secureContext: () => deps.secrets?.secureContext,
      healthz: () => this.#page("healthz"),
      readyz: async (options) => this.#readiness(options),
      metrics: () => this.#page("metrics"),
      streams: this.#streams,
      mark: options.mark,
      query: deps.query,
      hostsPath: options.hostsPath,
      onBug: (error) => this.#onBug(error),
    });
    this.#listeners = new ListenerSet(
      {
        log: deps.log,
        clock: this.#clock,
        streams: this.#streams,
        onClient: (fd, remote, listener) => this.#engine.accept(fd, remote, this.#withTls(listener)),
        openFd: deps.openListener,
        spawn: (run) => this.#group?.spawn(run),
      },
      {
        backlog: () => this.#settings.limits.backlog,
        isShared: ({ role }) => role === "host" && this.#threads !== undefined,
      },
    );
    this.#engine.penalties.onEvent = (event) => this.#threads?.sendPenalty(event);
    uplinkProxyMetrics(this.#registry).observe({
      counters: this.#counters,
      snapshot: () => deps.snapshots.current,
      penalties: () => this.#engine.penalties.list(),
    });
    const { metricsMapPath } = options;
    const fileDeps = { clock: this.#clock, log: deps.log, map: this.#counters.map };
    this.#metricsFile = metricsMapPath === undefined ? undefined : new MetricsFile(fileDeps, { path: metricsMapPath });
  }

  /** Counters since the start. */
  get counters(): Counters {
    return this.#counters;
  }

  /** The object of GET /healthz (docs/spec/uplink-proxy.md#8). */
  health(): Record<string, unknown> {
    this.#engine.flush();
    return healthReport({
      clock: this.#clock,
      snapshot: this.#deps.snapshots.current,
      counters: this.#counters,
      penalties: this.#engine.penalties.list(),
      listeners: this.#settings.listeners,
      bound: this.bound,
      version: this.#options.version,
      startedAt: this.#startedAt,
      staleDnsAnswers: this.#engine.dns.staleAnswers,
      more: this.#deps.health?.() ?? {},
    });
  }

  /** Names of the listeners that all of their threads have bound. */
  get bound(): ReadonlySet<string> {
    const isEverywhere = ({ role, name }: ListenerSettings): boolean =>
      role !== "host" || (this.#threads?.isBound(name) ?? true);
    return new Set(this.#listeners.bound.filter(isEverywhere).map(({ name }) => name));
  }

  /** Applies new settings to requests from now on; opens and closes listeners. Tunnels stay. */
  reload(settings: Settings): void {
    if (this.#group !== undefined && settings.workers !== this.#settings.workers) {
      this.#deps.log.warn("the number of workers changes only when uplink-proxy is restarted");
    }
    this.#settings = settings;
    this.#engine.settingsChanged();
    this.#threads?.setSettings(settings);
    if (this.#group !== undefined) this.#listeners.sync(settings.listeners);
  }

  /**
   * Listens and serves until the signal aborts; then refuses requests, lets tunnels run for `drainMs`, and ends them. Resolves when all
   * sockets are closed. Rejects only for bugs.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup();
    this.#group = group;
    this.#threads = this.#startThreads();
    using _changes = this.#deps.snapshots.onChange(() => this.#onSnapshot());
    this.#listeners.sync(this.#settings.listeners);
    group.spawn((until) => this.#tick(until));
    const file = this.#metricsFile;
    if (file !== undefined) group.spawn((until) => file.run({ signal: until }));
    group.spawn((failed) => this.#untilStopped(signal, failed));
    try {
      await group.wait();
    } finally {
      this.#group = undefined;
      this.#listeners.stop();
      this.#engine.close("drain");
      await this.#threads?.close();
      await this.#emptied();
      this.#threads = undefined;
      await file?.flush();
    }
  }

  #startThreads(): Threads | undefined {
    const { log, evidence, snapshots, startThreads } = this.#deps;
    const { workers } = this.#settings;
    if (workers < 2) return undefined;
    const onPenalty = (event: PenaltyEvent): void => this.#engine.penalties.apply(event);
    const onBug = (error: unknown): void => this.#onBug(error);
    const record = (event: StatsEvent): void => this.#record(event);
    const { mark, hostsPath } = this.#options;
    return startThreads?.(
      { log, evidence, snapshots, record, onPenalty, onBug, page: (page) => this.#page(page) },
      {
        threads: workers - 1,
        settings: this.#settings,
        limiter: this.#limiter.memory,
        mark,
        hostsPath,
        streams: this.#streams.kind,
      },
    );
  }

  #readiness(options: { readonly isVerbose: boolean }): Readiness {
    const { readiness, snapshots } = this.#deps;
    if (readiness !== undefined) return readiness(options);
    const isReady = snapshots.current.ready;
    return { isReady, text: isReady ? "ok\n" : "not ready\n" };
  }

  async #page(page: Page): Promise<string> {
    if (page === "readyz" || page === "readyz?verbose") {
      return JSON.stringify(this.#readiness({ isVerbose: page === "readyz?verbose" }));
    }
    if (page === "metrics") return Buffer.from(await this.#exposition.read()).toString("utf8");
    this.#engine.flush();
    return `${JSON.stringify(this.health())}\n`;
  }

  async #untilStopped(signal: AbortSignal, failed: AbortSignal): Promise<void> {
    await untilAborted(AbortSignal.any([signal, failed]));
    this.#listeners.stop();
    this.#engine.beginDrain();
    this.#threads?.drain();
    const until = this.#clock.monotonic() + this.#settings.limits.drainMs;
    while (this.#limiter.tunnels > 0 && this.#clock.monotonic() < until && !failed.aborted) {
      await sleep(Math.min(DRAIN_POLL_MS, Math.max(1, until - this.#clock.monotonic())), { clock: this.#clock });
    }
    this.#engine.close("drain");
    this.#engine.flush();
    this.#group?.abort();
  }

  /** Waits until closed tunnels are counted, which takes a tick or two. */
  async #emptied(): Promise<void> {
    const until = systemClock.monotonic() + CLOSE_MS;
    while (this.#limiter.tunnels > 0 && systemClock.monotonic() < until)
      await new Promise<void>((resolve) => setImmediate(resolve));
    this.#engine.flush();
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const flush = async (): Promise<void> => this.#engine.flush();
    await repeat(flush, { signal, clock: this.#clock, everyMs: TICK_MS, startsIdle: true });
  }

  #record(event: StatsEvent): void {
    this.#counters.record(event);
    if (event.kind !== "bytes" || event.down === 0) return;
    const now = this.#clock.monotonic();
    for (const { ifName, name } of this.#deps.snapshots.current.uplinks) {
      if (ifName !== event.ifName || now - (this.#toldAt.get(name) ?? -TICK_MS) < TICK_MS) continue;
      this.#toldAt.set(name, now);
      this.#deps.evidence.bytesReceived(name);
    }
  }

  #onSnapshot(): void {
    this.#engine.snapshotChanged();
    this.#threads?.setSnapshot(this.#deps.snapshots.current);
    this.#listeners.retryNow();
  }

  #withTls(listener: ListenerSettings): ListenerSettings {
    const isRequired = listener.tls === "optional" && this.#deps.secrets?.isPublished === true;
    return isRequired ? { ...listener, tls: "required" } : listener;
  }

  #onBug(error: unknown): void {
    this.#group?.fail(error);
  }
}
