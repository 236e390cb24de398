import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { isKubeError, type KubeApi, KubeConfigError, KubeError, type Lease, resources } from "#kube/client";
import { outcomeOf, type ServerLeaseMetrics } from "./metrics.ts";
import { LEASE_DURATION_MS, LEASE_RENEW_MS, leaseName, selectorOf, validUntil } from "./names.ts";

/** Timeout of a request, in milliseconds. */
const REQUEST_TIMEOUT_MS = 10_000;

export interface LeaseCollectorDeps {
  readonly api: Pick<KubeApi, "listAll" | "delete">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ServerLeaseMetrics;
}

export interface LeaseCollectorOptions {
  /** The Lease of this server is never deleted. */
  readonly serverID: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Leases by name: the version seen last, and since when it has not changed (`Clock.monotonic`). */
type Observations = ReadonlyMap<string, { readonly resourceVersion: string; readonly sinceMs: number }>;

/**
 * Deletes expired Leases of servers that have ended.
 *
 * A Lease has expired if its time has passed and it was not renewed while this server observed it for as long as a Lease lasts. Therefore a
 * server with a wrong clock does not delete the Lease of a live server.
 */
export class LeaseCollector {
  readonly #deps: LeaseCollectorDeps;
  readonly #options: LeaseCollectorOptions;
  #sightings: Observations = new Map();

  constructor(deps: LeaseCollectorDeps, options: LeaseCollectorOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** Makes a pass at once and every 15 s until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await repeat(() => this.collectOnce({ signal }), { signal, clock: this.#deps.clock, everyMs: LEASE_RENEW_MS });
  }

  /** Makes one pass. Failures of the API are counted and logged; the next pass tries again. */
  async collectOnce({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock } = this.#deps;
    const leases = await list(this.#deps, this.#options, signal);
    if (leases === undefined) return;
    this.#sightings = observe(this.#sightings, leases, clock.monotonic());
    const own = leaseName(this.#options.serverID);
    for (const lease of leases) {
      const until = validUntil(lease);
      if (lease.metadata.name === own || until === undefined || until > clock.now()) continue;
      const { sinceMs = Number.POSITIVE_INFINITY } = this.#sightings.get(lease.metadata.name) ?? {};
      if (clock.monotonic() - sinceMs >= LEASE_DURATION_MS) await remove(this.#deps, lease, signal);
    }
  }
}

/** The present Leases, with the time since which each has not changed. Pure. */
function observe(before: Observations, leases: readonly Lease[], nowMs: number): Observations {
  return new Map(
    leases.map(({ metadata: { name, resourceVersion } }) => {
      const known = before.get(name);
      const isSame = known?.resourceVersion === resourceVersion;
      return [name, { resourceVersion, sinceMs: isSame ? known.sinceMs : nowMs }];
    }),
  );
}

/** Lists the Leases; `undefined` if the request failed, which is logged. */
async function list(
  { api, clock, log, metrics }: LeaseCollectorDeps,
  { namespace, labels }: LeaseCollectorOptions,
  signal: AbortSignal,
): Promise<readonly Lease[] | undefined> {
  const started = clock.monotonic();
  const seconds = (): number => (clock.monotonic() - started) / 1000;
  const options = { namespace, labelSelector: selectorOf(labels), signal, timeoutMs: REQUEST_TIMEOUT_MS };
  try {
    const { items } = await api.listAll(resources.leases, options);
    metrics.listed({ ...outcomeOf(undefined), seconds: seconds() });
    return items;
  } catch (error) {
    rethrowUnexpected(error, signal);
    if (error instanceof KubeError) metrics.listed({ ...outcomeOf(error), seconds: seconds() });
    log.warn("cannot list Leases", { namespace, reason: describeError(error) });
    return undefined;
  }
}

async function remove(
  { api, clock, log, metrics }: LeaseCollectorDeps,
  { metadata: { namespace, name, resourceVersion } }: Lease,
  signal: AbortSignal,
): Promise<void> {
  const started = clock.monotonic();
  const seconds = (): number => (clock.monotonic() - started) / 1000;
  // A Lease that was renewed after the list is not deleted.
  const options = { preconditions: { resourceVersion }, signal, timeoutMs: REQUEST_TIMEOUT_MS };
  try {
    await api.delete(resources.leases, { namespace, name }, options);
    metrics.deleted({ ...outcomeOf(undefined), seconds: seconds() });
    metrics.culled();
    log.info("an expired Lease was deleted", { lease: `${namespace}/${name}` });
  } catch (error) {
    rethrowUnexpected(error, signal);
    if (error instanceof KubeError) metrics.deleted({ ...outcomeOf(error), seconds: seconds() });
    if (isKubeError(error, "not-found", "conflict")) return;
    log.warn("cannot delete an expired Lease", { lease: `${namespace}/${name}`, reason: describeError(error) });
  }
}

/** Throws the error again, unless the API has failed. */
function rethrowUnexpected(error: unknown, signal: AbortSignal): void {
  signal.throwIfAborted();
  if (!(error instanceof KubeError || error instanceof KubeConfigError)) throw error;
}
