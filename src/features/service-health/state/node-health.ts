import type { Clock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { type FamilyStatus, type HealthAnswer, healthBody, type StartupState } from "./body.ts";
import { AUTOSCALER_TAINT, isEligible, type NodeView } from "./eligibility.ts";
import { FamilyHealth } from "./family-health.ts";

/** Settings of a {@link NodeHealth}. */
export interface NodeHealthOptions {
  /** The time for which a change may wait, in milliseconds: twice the sync period. */
  readonly healthTimeoutMs: number;
  /** `strict` (default): load balancers must not use the node before its first sync. `compatible`: they may, as with kube-proxy. */
  readonly startup?: "strict" | "compatible";
  /** Gate `KubeProxyDrainingTerminatingNodes`, default on. Off: `/healthz` ignores the Node. */
  readonly drainsTerminatingNodes?: boolean;
  /** Keys of the taints that drain the node. Default: only {@link AUTOSCALER_TAINT}. */
  readonly drainingTaintKeys?: readonly string[];
  readonly clock: Clock;
}

/** `healthz`: may load balancers use this node? `livez`: does the proxy work, or may a restart help? */
export type HealthCheck = "healthz" | "livez";

/**
 * The health of this node's service proxy (docs/spec/service-proxy.md#1.2 to #1.4, #1.6). Methods report events; answers come from memory.
 * While the API server cannot be reached, no events are reported, and the last known state is used.
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
  #hasAdopted = false;
  #isAway = false;
  /** The time since which the API server refuses the first list of a resource, monotonic milliseconds. */
  readonly #refusedSince = new Map<string, number>();
  #isStopping = false;
  #node: NodeView | undefined;

  constructor(options: NodeHealthOptions) {
    this.#timeoutMs = options.healthTimeoutMs;
    this.#isStrict = options.startup !== "compatible";
    this.#drainsTerminatingNodes = options.drainsTerminatingNodes ?? true;
    this.#drainingTaintKeys = options.drainingTaintKeys ?? [AUTOSCALER_TAINT];
    this.#clock = options.clock;
    this.#startedAt = this.#clock.monotonic();
  }

  /** Records that the sync loops of these families run. The health covers all of them. */
  started(families: Iterable<IpFamily>): void {
    for (const family of families) {
      const state = this.#family(family);
      if (!this.#isStrict) state.assumeUpdated(this.#clock.now());
      if (this.#listedAt !== undefined) state.queued(this.#listedAt);
    }
  }

  /** Records that Services and EndpointSlices were both listed: the API server was reached, and the first sync is due. */
  listed(): void {
    if (this.#listedAt !== undefined) return;
    this.#listedAt = this.#clock.monotonic();
    for (const family of this.#families.values()) {
      if (!family.isSynced) family.queued(this.#listedAt);
    }
  }

  /**
   * Records that the kernel holds a complete table of an earlier run: the node counts as serving until the first sync, which has its time. Does
   * nothing after {@link NodeHealth.listed}, or in the mode `compatible`.
   */
  adopted(): void {
    if (this.#isStrict && this.#listedAt === undefined) this.#hasAdopted = true;
  }

  /** Records that the API server cannot be reached. With an adopted table a Node that was never seen counts as eligible then. */
  away(): void {
    if (this.#listedAt === undefined) this.#isAway = true;
  }

  /**
   * Records that the API server refuses, or that it answers, the list of Services or of EndpointSlices. An adopted table does not count when a
   * list has been refused for the timeout.
   */
  refused(resource: string, isRefused: boolean): void {
    if (!isRefused) this.#refusedSince.delete(resource);
    else if (!this.#refusedSince.has(resource)) this.#refusedSince.set(resource, this.#clock.monotonic());
  }

  /** Records that a change waits to be synced. */
  queued(family: IpFamily): void {
    this.#family(family).queued(this.#clock.monotonic());
  }

  /** Records that a sync begins; later changes are for the next sync. */
  syncing(family: IpFamily): void {
    this.#family(family).syncing();
  }

  /** Records that a sync succeeded. */
  synced(family: IpFamily): void {
    this.#family(family).synced(this.#clock.now());
  }

  /** Records that a sync failed. */
  failed(family: IpFamily, error: unknown): void {
    this.#family(family).failed(error);
  }

  /** Sets the Node. Must not be called for a deleted Node, so that its last state stays. */
  node(view: NodeView): void {
    this.#node = view;
  }

  /** Records that the program ends: load balancers get 503 from now on. */
  stopping(): void {
    this.#isStopping = true;
  }

  /** True if the proxy can serve. The eligibility of the node does not count. */
  get isServing(): boolean {
    return !this.#isStopping && this.#isProxyHealthy("healthz");
  }

  /** True if the Node is not being deleted or drained (docs/spec/service-proxy.md#1.3). */
  get isNodeEligible(): boolean {
    if (this.#node === undefined) return this.#isAway && this.startup === "adopted";
    return isEligible(this.#node, this.#drainingTaintKeys);
  }

  get startup(): StartupState {
    const families = [...this.#families.values()];
    if (families.length > 0 && families.every(({ isSynced }) => isSynced)) return "synced";
    return this.#isAdopted ? "adopted" : "pending";
  }

  /** True if the check passes now. */
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

  get #isAdopted(): boolean {
    if (!this.#hasAdopted || this.#listedAt !== undefined) return this.#hasAdopted;
    const now = this.#clock.monotonic();
    return [...this.#refusedSince.values()].every((since) => now - since < this.#timeoutMs);
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

  /**
   * Returns true if a check passes before the first sync. `healthz` fails in `strict`. `livez` fails only if the sync had its time and did not
   * succeed.
   */
  #isStartingWell(check: HealthCheck): boolean {
    if (!this.#isStrict || this.#isAdopted) return true;
    if (check === "healthz") return false;
    if (this.#listedAt === undefined) return true;
    // If the lists came later than the timeout, the time counts from them. Otherwise all nodes would be restarted at the end of an outage.
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
