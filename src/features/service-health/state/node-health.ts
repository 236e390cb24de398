import { type Clock, systemClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { type FamilyStatus, type HealthAnswer, healthBody, type StartupState } from "./body.ts";
import { AUTOSCALER_TAINT, isEligible, type NodeView } from "./eligibility.ts";
import { FamilyHealth } from "./family-health.ts";

/** Settings of a {@link NodeHealth}. */
export interface NodeHealthOptions {
  /** A change may wait so long, milliseconds: twice the sync period. */
  readonly healthTimeoutMs: number;
  /** `strict` (default): a node whose Services were never programmed takes no traffic. `compatible`: as kube-proxy, it does. */
  readonly startup?: "strict" | "compatible";
  /** Gate `KubeProxyDrainingTerminatingNodes`, default on. Off: `/healthz` is as `/livez`, whatever the Node says. */
  readonly drainsTerminatingNodes?: boolean;
  /** Default {@link AUTOSCALER_TAINT} alone. */
  readonly drainingTaintKeys?: readonly string[];
  readonly clock?: Clock;
}

/** Which question: may load balancers send here (`healthz`), is the proxy worth a restart (`livez`). */
export type HealthCheck = "healthz" | "livez";

/**
 * The health of this node's service proxy (docs/spec/service-proxy.md#1.2 to #1.4, #1.6): told what happens, answers from memory. When the API
 * server goes away nothing is told any more and nothing changes: what was known goes on to hold.
 */
export class NodeHealth {
  readonly #timeoutMs: number;
  readonly #isStrict: boolean;
  readonly #drainsTerminatingNodes: boolean;
  readonly #drainingTaintKeys: readonly string[];
  readonly #clock: Clock;
  readonly #startedAt: number;
  readonly #families = new Map<IpFamily, FamilyHealth>();
  #listedAt: number | undefined;
  #isAdopted = false;
  #isStopping = false;
  #node: NodeView | undefined;

  constructor(options: NodeHealthOptions) {
    this.#timeoutMs = options.healthTimeoutMs;
    this.#isStrict = options.startup !== "compatible";
    this.#drainsTerminatingNodes = options.drainsTerminatingNodes ?? true;
    this.#drainingTaintKeys = options.drainingTaintKeys ?? [AUTOSCALER_TAINT];
    this.#clock = options.clock ?? systemClock;
    this.#startedAt = this.#clock.monotonic();
  }

  /** The sync loops of these families run. Health is that of all of them. */
  started(families: Iterable<IpFamily>): void {
    for (const family of families) {
      const state = this.#family(family);
      if (!this.#isStrict) state.assumeUpdated(this.#clock.now());
      if (this.#listedAt !== undefined) state.queued(this.#listedAt);
    }
  }

  /** Services and EndpointSlices were both listed: the API server was reached, and the first sync is due. */
  listed(): void {
    if (this.#listedAt !== undefined) return;
    this.#listedAt = this.#clock.monotonic();
    for (const family of this.#families.values()) {
      if (!family.isSynced) family.queued(this.#listedAt);
    }
  }

  /**
   * The API server cannot be reached and the kernel holds a complete table of an earlier run, so the node serves as it did. Means
   * nothing after {@link NodeHealth.listed}, nor in `compatible`.
   */
  adopted(): void {
    this.#isAdopted = this.#isStrict && this.#listedAt === undefined;
  }

  /** A change waits to be synced. */
  queued(family: IpFamily): void {
    this.#family(family).queued(this.#clock.monotonic());
  }

  /** A sync begins; what is queued from now on is for the next. */
  syncing(family: IpFamily): void {
    this.#family(family).syncing();
  }

  /** A sync succeeded. */
  synced(family: IpFamily): void {
    this.#family(family).synced(this.#clock.now());
  }

  /** A sync failed. */
  failed(family: IpFamily, error: unknown): void {
    this.#family(family).failed(error);
  }

  /** The Node as it is now. One that was deleted is not told of: what was known last stays. */
  node(view: NodeView): void {
    this.#node = view;
  }

  /** The program ends: load balancers are told to go elsewhere. */
  stopping(): void {
    this.#isStopping = true;
  }

  /** Load balancers may use this node as far as Services are concerned, whatever becomes of the node. */
  get isServing(): boolean {
    return !this.#isStopping && this.#isProxyHealthy("healthz");
  }

  /** The Node is not on its way out (docs/spec/service-proxy.md#1.3). */
  get isNodeEligible(): boolean {
    if (this.#node === undefined) return this.startup === "adopted";
    return isEligible(this.#node, this.#drainingTaintKeys);
  }

  get startup(): StartupState {
    const families = [...this.#families.values()];
    if (families.length > 0 && families.every(({ isSynced }) => isSynced)) return "synced";
    return this.#isAdopted ? "adopted" : "pending";
  }

  /** Whether a check passes now. */
  passes(check: HealthCheck): boolean {
    if (check === "livez") return this.#isProxyHealthy("livez");
    return this.isServing && (this.isNodeEligible || !this.#drainsTerminatingNodes);
  }

  /** The answer on `/healthz`. */
  healthz(): HealthAnswer {
    return this.#answer("healthz", this.#drainsTerminatingNodes ? this.isNodeEligible : undefined);
  }

  /** The answer on `/livez`. */
  livez(): HealthAnswer {
    return this.#answer("livez", undefined);
  }

  #answer(check: HealthCheck, nodeEligible: boolean | undefined): HealthAnswer {
    const code = this.passes(check) ? 200 : 503;
    const body = healthBody({
      code,
      nowMs: this.#clock.now(),
      nodeEligible,
      healthy: this.#isProxyHealthy(check),
      families: this.#status(check),
      startup: this.startup,
      isStopping: this.#isStopping,
    });
    return { code, body };
  }

  #status(check: HealthCheck): FamilyStatus[] {
    const now = this.#clock.monotonic();
    return [...this.#families]
      .sort(([a], [b]) => a - b)
      .map(([family, state]) => ({
        family,
        healthy: this.#isFamilyHealthy(state, check),
        lastUpdatedMs: state.lastUpdatedMs,
        pendingMs: state.pendingMs(now),
        lastError: state.lastError,
      }));
  }

  #isProxyHealthy(check: HealthCheck): boolean {
    if (this.#families.size === 0) return this.#isStartingWell(check);
    return [...this.#families.values()].every((family) => this.#isFamilyHealthy(family, check));
  }

  #isFamilyHealthy(family: FamilyHealth, check: HealthCheck): boolean {
    if (!family.isSynced && this.#isStrict && !this.#isAdopted) return this.#isStartingWell(check);
    const pendingMs = family.pendingMs(this.#clock.monotonic());
    return pendingMs === undefined || pendingMs < this.#timeoutMs;
  }

  /** Before the first sync: no traffic in `strict`, but a restart would help only when the sync had its time and did not succeed. */
  #isStartingWell(check: HealthCheck): boolean {
    if (!this.#isStrict || this.#isAdopted) return true;
    if (check === "healthz") return false;
    if (this.#listedAt === undefined) return true;
    // After an outage longer than the timeout the sync has its time from then on; else all nodes would be restarted as it ends.
    const waitedAtListing = this.#listedAt - this.#startedAt;
    const since = waitedAtListing < this.#timeoutMs ? this.#startedAt : this.#listedAt;
    return this.#clock.monotonic() - since < this.#timeoutMs;
  }

  #family(family: IpFamily): FamilyHealth {
    const known = this.#families.get(family);
    if (known !== undefined) return known;
    const state = new FamilyHealth();
    this.#families.set(family, state);
    return state;
  }
}
