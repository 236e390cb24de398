import { sleep, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { isAbortError } from "#base/errors";
import {
  type ApiFailure,
  type Draft,
  findObject,
  isApiFailure,
  isKubeError,
  type KubeApi,
  type Lease,
  resources,
} from "#kube/client";

/** The Lease, our identity, and the durations. */
export interface LeaderElectionOptions {
  readonly namespace: string;
  readonly name: string;
  /** Unique among the candidates, and different after a restart: `<host>_<uuid>`. */
  readonly identity: string;
  /** Another candidate may take over a lease that was not renewed for this time, in milliseconds. Default 15,000. */
  readonly leaseDurationMs?: number;
  /**
   * A leader that cannot renew for this time stops, in milliseconds. Must be less than the lease duration. Each request may take half of it.
   * Default 10,000.
   */
  readonly renewDeadlineMs?: number;
  /** The pause between tries, in milliseconds; candidates add up to 1.2 times as much at random. Default 2,000. */
  readonly retryPeriodMs?: number;
  /** True if a leader that stops releases the lease, so that another candidate need not wait for its expiry. Default true. */
  readonly releaseOnStop?: boolean;
  /** Called when a leader is seen, ourselves included, and when it changes. */
  readonly onNewLeader?: (identity: string) => void;
  /** Called for each failed try; the candidate tries again. */
  readonly onError?: (error: ApiFailure) => void;
  /** Called at the first try that does not fail after `onError` was called: the leader may still be the one that was seen last. */
  readonly onRecovered?: () => void;
  readonly clock: Clock;
  readonly random?: () => number;
}

/** The reason why {@link runAsLeader} ended. */
export type LeadershipEnd = "stopped" | "lost" | "work-done";

type LeaseApi = Pick<KubeApi, "get" | "create" | "replace">;
type LeaseSpec = NonNullable<Lease["spec"]>;

interface Observed {
  readonly lease: Lease;
  /** The time at which we first saw this record, by our own monotonic clock: we do not trust the clocks of other candidates. */
  readonly atMs: number;
}

/** The number of times that a lease is read again after its release was refused because it had changed. */
const MAX_RELEASE_CONFLICTS = 3;
/**
 * The timeout of a request is the renew deadline divided by this (controller-runtime's number). After a request without an answer, over a
 * connection whose server is gone, there is time for another one over a new connection.
 */
const REQUESTS_IN_DEADLINE = 2;
/** Added to the retry period, as a share of it, so that candidates do not try at the same time (client-go's JitterFactor). */
const JITTER_FACTOR = 1.2;

/** The state of one candidate, modelled on client-go's package leaderelection. */
export class LeaderElector {
  readonly #api: LeaseApi;
  readonly #options: LeaderElectionOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly leaseDurationMs: number;
  readonly renewDeadlineMs: number;
  readonly retryPeriodMs: number;
  readonly #requestTimeoutMs: number;
  #observed: Observed | undefined;
  /** When the last request that made or kept us the leader was sent: others count from a later time. */
  #renewedAtMs = Number.NEGATIVE_INFINITY;
  #reported: string | undefined;
  #isFailing = false;

  /** Throws `RangeError` unless lease > renew deadline > 1.2 × retry period > 0. */
  constructor(api: LeaseApi, options: LeaderElectionOptions) {
    this.#api = api;
    this.#options = options;
    this.#clock = options.clock;
    this.#random = options.random ?? Math.random;
    this.leaseDurationMs = options.leaseDurationMs ?? 15_000;
    this.renewDeadlineMs = options.renewDeadlineMs ?? 10_000;
    this.retryPeriodMs = options.retryPeriodMs ?? 2_000;
    this.#requestTimeoutMs = this.renewDeadlineMs / REQUESTS_IN_DEADLINE;
    const { leaseDurationMs, renewDeadlineMs, retryPeriodMs } = this;
    if (!(leaseDurationMs > renewDeadlineMs && renewDeadlineMs > retryPeriodMs * JITTER_FACTOR && retryPeriodMs > 0)) {
      throw new RangeError(
        `lease (${leaseDurationMs} ms) > renew deadline (${renewDeadlineMs} ms) > ${JITTER_FACTOR} × retry period (${retryPeriodMs} ms) > 0 must hold, but does not`,
      );
    }
  }

  /** True when the last record seen names us. */
  get isLeader(): boolean {
    return this.#observed?.lease.spec?.holderIdentity === this.#options.identity;
  }

  /**
   * True while no other candidate can have the lease, by our own clock: it was renewed within the renew deadline, which is less than the
   * lease's duration. A process that was stopped for a while learns from it, before its timers tell, that it may lead no more.
   */
  get isFresh(): boolean {
    return this.isLeader && this.#clock.monotonic() - this.#renewedAtMs < this.renewDeadlineMs;
  }

  /** The leader of the last record that was read. */
  get leader(): string | undefined {
    const holder = this.#observed?.lease.spec?.holderIdentity;
    return holder === "" ? undefined : holder;
  }

  /** Tries until we lead. Rejects with the signal's reason when it aborts first. */
  async acquire(signal: AbortSignal): Promise<void> {
    while (!(await this.#try(signal))) {
      await sleep(this.retryPeriodMs * (1 + JITTER_FACTOR * this.#random()), { signal, clock: this.#clock });
    }
  }

  /** Renews the lease; resolves when renewing has failed for the renew deadline. Rejects with the signal's reason when it aborts. */
  async renew(signal: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(this.retryPeriodMs, { signal, clock: this.#clock });
      if (!(await this.#renewOnce(signal))) return;
    }
  }

  /**
   * Releases the lease, if this candidate holds it, so that another candidate can take it at once. A renewal whose answer was lost may have
   * changed the record: then the record is read again and released. Rejects with {@link KubeError}.
   */
  async release(signal?: AbortSignal): Promise<void> {
    for (let conflicts = 0; ; conflicts += 1) {
      const observed = this.#observed;
      if (observed === undefined || !this.isLeader) return;
      try {
        return await this.#giveUp(observed.lease, signal);
      } catch (error) {
        if (!isKubeError(error, "conflict") || conflicts >= MAX_RELEASE_CONFLICTS) throw error;
      }
      const { namespace, name } = this.#options;
      const options = { signal, timeoutMs: this.#requestTimeoutMs };
      const current = await findObject(this.#api, resources.leases, { namespace, name }, options);
      if (current === undefined) return;
      this.#observe(current);
    }
  }

  async #giveUp(lease: Lease, signal: AbortSignal | undefined): Promise<void> {
    const now = microTime(this.#clock.now());
    const spec = {
      holderIdentity: "",
      leaseDurationSeconds: 1,
      acquireTime: now,
      renewTime: now,
      leaseTransitions: lease.spec?.leaseTransitions ?? 0,
    };
    const options = { signal, timeoutMs: this.#requestTimeoutMs };
    this.#observe(await this.#api.replace(resources.leases, withSpec(lease, spec), options));
  }

  async #renewOnce(signal: AbortSignal): Promise<boolean> {
    const work = async (deadline: AbortSignal): Promise<boolean> => {
      while (!(await this.#try(deadline))) {
        // Another candidate holds the lease, so renewing has ended.
        if (!this.isLeader) return false;
        await sleep(this.retryPeriodMs, { signal: deadline, clock: this.#clock });
      }
      return true;
    };
    try {
      return await withDeadline(this.renewDeadlineMs, work, { signal, clock: this.#clock });
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (isAbortError(error)) return false;
      throw error;
    }
  }

  /** One try to get or keep the lease. False: another candidate has it, or the API failed. */
  async #try(signal: AbortSignal): Promise<boolean> {
    try {
      const isOurs = await this.#getOrUpdate(signal);
      if (this.#isFailing) this.#options.onRecovered?.();
      this.#isFailing = false;
      return isOurs;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (!isApiFailure(error)) throw error;
      // Another candidate has written the lease first: the next try reads its record.
      if (isKubeError(error, "conflict", "already-exists")) return false;
      this.#isFailing = true;
      this.#options.onError?.(error);
      return false;
    }
  }

  async #getOrUpdate(signal: AbortSignal): Promise<boolean> {
    const { namespace, name, identity } = this.#options;
    const options = { signal, timeoutMs: this.#requestTimeoutMs };
    const current = await findObject(this.#api, resources.leases, { namespace, name }, options);
    const sentAtMs = this.#clock.monotonic();
    const now = microTime(this.#clock.now());
    const record = { holderIdentity: identity, leaseDurationSeconds: this.#leaseSeconds(), renewTime: now };
    if (current === undefined) {
      const spec = { ...record, acquireTime: now, leaseTransitions: 0 };
      this.#observe(await this.#api.create(resources.leases, { metadata: { name, namespace }, spec }, options));
      this.#renewedAtMs = sentAtMs;
      return true;
    }
    this.#observe(current);
    const held = current.spec ?? {};
    const mine = held.holderIdentity === identity;
    if (!mine && (held.holderIdentity ?? "") !== "" && !this.#expired()) return false;
    const transitions = held.leaseTransitions ?? 0;
    const next = withSpec(current, {
      ...record,
      acquireTime: mine ? (held.acquireTime ?? now) : now,
      leaseTransitions: mine ? transitions : transitions + 1,
    });
    this.#observe(await this.#api.replace(resources.leases, next, options));
    this.#renewedAtMs = sentAtMs;
    return true;
  }

  #leaseSeconds(): number {
    return Math.max(1, Math.round(this.leaseDurationMs / 1000));
  }

  /** True if, by our own clock, we first saw the record longer ago than the lease duration. */
  #expired(): boolean {
    const observed = this.#observed;
    return observed === undefined || this.#clock.monotonic() - observed.atMs >= this.leaseDurationMs;
  }

  #observe(lease: Lease): void {
    if (this.#observed?.lease.metadata.resourceVersion !== lease.metadata.resourceVersion) {
      this.#observed = { lease, atMs: this.#clock.monotonic() };
    }
    const leader = this.leader;
    if (leader !== undefined && leader !== this.#reported) {
      this.#reported = leader;
      this.#options.onNewLeader?.(leader);
    }
  }
}

function withSpec(lease: Lease, spec: LeaseSpec): Draft<Lease> {
  return { ...lease, spec: { ...lease.spec, ...spec } };
}

/** RFC 3339 with microseconds (metav1.MicroTime). */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace("Z", "000Z");
}
