import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { KubeError, type Lease, resources, type StoredMeta } from "#kube/client";
import { createInformer, type Informer, type InformerApi } from "#kube/informer";
import { type AgentLeaseMetrics, outcomeOf } from "./metrics.ts";
import { validUntil } from "./names.ts";

export interface LeaseCounterOptions {
  readonly namespace: string;
  /** Selector of the servers' Leases, in the syntax of kubectl's `-l`. */
  readonly labelSelector: string;
}

export interface LeaseCounterDeps {
  readonly api: InformerApi;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: AgentLeaseMetrics;
  /** The part of the health that is ok while the watch of the Leases works. */
  readonly health: HealthPart;
  /** Called when the number of valid Leases has changed. */
  readonly onChange: () => void;
}

/** The part of a Lease that is cached. */
interface CachedLease {
  readonly metadata: StoredMeta;
  readonly spec: Lease["spec"];
}

/**
 * The time after the last news of any Lease for which its expiry still counts, in milliseconds. A server that runs renews its Lease 15 s before the end, so
 * without news for longer either no server runs or the API server cannot be heard.
 */
const NEWS_MS = 5000;

/** Counts the valid Leases of proxy servers (docs/spec/tunnel.md#11). */
export class LeaseCounter {
  readonly #clock: Clock;
  readonly #onChange: () => void;
  readonly #informer: Informer<Lease, CachedLease>;
  #lastGood: number | undefined;
  /** When the last news of a Lease came, in milliseconds of the wall clock. */
  #heardAt = 0;

  constructor(deps: LeaseCounterDeps, options: LeaseCounterOptions) {
    this.#clock = deps.clock;
    this.#onChange = deps.onChange;
    this.#informer = createInformer<Lease, CachedLease>(counted(deps), resources.leases, {
      ...options,
      clock: deps.clock,
      transform: ({ metadata, spec }) => ({ metadata, spec }),
      onHealth: (health) => {
        if (health.state === "degraded") deps.health.degraded(health.error);
        else deps.health.ok();
        if (health.state === "degraded" && health.failures === 1) {
          deps.log.warn("cannot follow the Leases of proxy servers", { reason: describeError(health.error) });
        }
      },
    });
    const onEvent = (): void => {
      this.#heardAt = this.#clock.now();
      this.#checkCount();
    };
    this.#informer.addHandler({ onAdd: onEvent, onUpdate: onEvent, onDelete: onEvent });
  }

  /** Follows the Leases until the signal aborts. */
  run(options: { readonly signal: AbortSignal }): Promise<void> {
    return this.#informer.run(options);
  }

  /**
   * The number of Leases that are valid. While none is heard of, the number of those that were valid shortly after the last news: an API server
   * that is away ends no Lease. If no Lease is valid, the last number that was not zero; `undefined` before the first valid Lease.
   */
  get count(): number | undefined {
    const now = Math.min(this.#clock.now(), this.#heardAt + NEWS_MS);
    const valid = this.#informer.store.list().filter((lease) => (validUntil(lease) ?? 0) > now).length;
    if (valid > 0) this.#lastGood = valid;
    return this.#lastGood;
  }

  #checkCount(): void {
    const before = this.#lastGood;
    // Most events are renewals, which change nothing.
    if (this.count !== before) this.#onChange();
  }
}

/** The API client with metrics of its lists and watches. */
function counted({ api, clock, metrics }: LeaseCounterDeps): InformerApi {
  const { whenOpen } = api;
  return {
    ...(whenOpen === undefined ? {} : { whenOpen: (options) => whenOpen.call(api, options) }),
    async *listPages(type, options) {
      const started = clock.monotonic();
      const seconds = (): number => (clock.monotonic() - started) / 1000;
      try {
        yield* api.listPages(type, options);
        metrics.listed({ ...outcomeOf(undefined), seconds: seconds() });
      } catch (error) {
        if (error instanceof KubeError) metrics.listed({ ...outcomeOf(error), seconds: seconds() });
        throw error;
      }
    },
    async *watch(type, options) {
      try {
        yield* api.watch(type, {
          ...options,
          onOpen: () => {
            metrics.watched(outcomeOf(undefined));
            options?.onOpen?.();
          },
        });
      } catch (error) {
        if (error instanceof KubeError) metrics.watched(outcomeOf(error));
        throw error;
      }
    },
  };
}
