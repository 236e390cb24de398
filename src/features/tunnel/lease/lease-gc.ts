import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { isKubeError, type KubeApi, KubeConfigError, KubeError, type Lease, resources } from "#kube/client";
import { outcomeOf, type ServerLeaseMetrics } from "./metrics.ts";
import { LEASE_RENEW_MS, leaseName, selectorOf, validUntil } from "./names.ts";

/** How long a request may take, milliseconds. */
const REQUEST_TIMEOUT_MS = 10_000;

export interface LeaseCollectorDeps {
  readonly api: Pick<KubeApi, "listAll" | "delete">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ServerLeaseMetrics;
}

export interface LeaseCollectorOptions {
  /** Our own Lease is never collected: we are there. */
  readonly serverID: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Deletes expired Leases of servers that are no more, every 15 s until the signal aborts. */
export async function collectLeases(
  deps: LeaseCollectorDeps,
  options: LeaseCollectorOptions,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  while (!signal.aborted) {
    await sleep(LEASE_RENEW_MS, { signal, clock: deps.clock });
    await collectOnce(deps, options, { signal });
  }
}

/** One pass. Failures of the API are counted and logged; the next pass tries again. */
export async function collectOnce(
  deps: LeaseCollectorDeps,
  options: LeaseCollectorOptions,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const leases = await list(deps, options, signal);
  const now = deps.clock.now();
  const own = leaseName(options.serverID);
  for (const lease of leases) {
    const until = validUntil(lease);
    if (lease.metadata.name === own || until === undefined || until > now) continue;
    await remove(deps, lease, signal);
  }
}

async function list(
  { api, clock, log, metrics }: LeaseCollectorDeps,
  { namespace, labels }: LeaseCollectorOptions,
  signal: AbortSignal,
): Promise<readonly Lease[]> {
  const started = clock.monotonic();
  const seconds = (): number => (clock.monotonic() - started) / 1000;
  const options = { namespace, labelSelector: selectorOf(labels), signal, timeoutMs: REQUEST_TIMEOUT_MS };
  try {
    const { items } = await api.listAll(resources.leases, options);
    metrics.listed({ ...outcomeOf(undefined), seconds: seconds() });
    return items;
  } catch (error) {
    expected(error, signal);
    if (error instanceof KubeError) metrics.listed({ ...outcomeOf(error), seconds: seconds() });
    log.warn("cannot list Leases", { namespace, reason: describeError(error) });
    return [];
  }
}

async function remove(
  { api, clock, log, metrics }: LeaseCollectorDeps,
  { metadata: { namespace, name, resourceVersion } }: Lease,
  signal: AbortSignal,
): Promise<void> {
  const started = clock.monotonic();
  const seconds = (): number => (clock.monotonic() - started) / 1000;
  // Renewed since we listed: then it is not expired any more.
  const options = { preconditions: { resourceVersion }, signal, timeoutMs: REQUEST_TIMEOUT_MS };
  try {
    await api.delete(resources.leases, { namespace, name }, options);
    metrics.deleted({ ...outcomeOf(undefined), seconds: seconds() });
    metrics.culled();
    log.info("expired Lease deleted", { lease: `${namespace}/${name}` });
  } catch (error) {
    expected(error, signal);
    if (error instanceof KubeError) metrics.deleted({ ...outcomeOf(error), seconds: seconds() });
    if (isKubeError(error, "not-found", "conflict")) return;
    log.warn("cannot delete an expired Lease", { lease: `${namespace}/${name}`, reason: describeError(error) });
  }
}

/** Throws again what is no failure of the API. */
function expected(error: unknown, signal: AbortSignal): void {
  signal.throwIfAborted();
  if (!(error instanceof KubeError || error instanceof KubeConfigError)) throw error;
}
