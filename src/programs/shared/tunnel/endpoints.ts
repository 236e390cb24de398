import { systemClock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { type MetricValues, type Registry, readMetrics, sumMetrics } from "#base/metrics";
import type { Worker, WorkerGroup } from "#base/workers";
import type { Authorize, HttpRoutes } from "#wire/http-endpoint";
import { metricsLogin, metricsRoute, serveHeapSnapshots, serveRoutes, textRoute } from "../http-endpoints/index.ts";
import {
  type CheckResult,
  type HealthSource,
  healthRoutes,
  type ReadinessCheck,
  resultsOf,
  type Unready,
} from "./readiness.ts";

/** The time in which a worker must answer, in milliseconds. A prober that waits less takes the probe for failed by itself. */
const ANSWER_MS = 5000;
/** The questions of a leader to its workers. */
const [CHECKS, METRICS] = ["checks", "metrics"];

/** The ports for probes, scrapers and operators. */
export interface EndpointParts {
  readonly registry: Registry;
  readonly checks: () => readonly ReadinessCheck[];
  readonly unready: Unready;
  readonly adminRoutes: (metrics: HttpRoutes[string]) => HttpRoutes;
  readonly health: ListenAddress;
  readonly admin: ListenAddress;
  /** Another process of this program may have the ports too, which takes over or is taken over. Default: no. */
  readonly isShared?: boolean;
  /** Ranges of those who may read metrics and profiles; empty: everybody. */
  readonly metricsFrom: readonly Cidr[];
  /** Metrics and profiles ask for a token that the API server of this kubeconfig reviews. Default: they do not. */
  readonly authorization?: MetricsAuthorization | undefined;
  /** Path of the socket for heap snapshots; empty: none. */
  readonly heapSnapshotSocket: string;
  readonly log: Logger;
  readonly onBug: (error: unknown) => void;
}

/** The account that asks the API server, and its address. */
export interface MetricsAuthorization {
  readonly program: string;
  /** Empty: as `openClient` finds it. */
  readonly kubeconfig: string;
  /** Further servers. */
  readonly apiServer: readonly string[];
}

/** Serves both ports; a worker answers its leader instead, which has them. Rejects with `HealthServerError`, `KubeConfigError`. */
export async function serveEndpoints(parts: EndpointParts, worker: Worker | undefined): Promise<AsyncDisposable> {
  const { registry, checks } = parts;
  if (worker === undefined) {
    const results = (): readonly CheckResult[] => resultsOf(checks());
    return serve(parts, { results, fault: () => undefined, metrics: metricsRoute(registry) });
  }
  worker.answer(CHECKS, () => resultsOf(checks()));
  worker.answer(METRICS, () => readMetrics(registry));
  return { [Symbol.asyncDispose]: () => Promise.resolve() };
}

/**
 * Serves both ports for workers: a check fails if it fails in one of them, metrics are summed, and a worker that does not answer makes the
 * program unhealthy. `workers` returns `undefined` while they start.
 */
export function serveEndpointsOf(
  workers: () => WorkerGroup | undefined,
  parts: EndpointParts,
): Promise<AsyncDisposable> {
  const { registry, checks } = parts;
  const ask = async (question: string): Promise<readonly unknown[]> =>
    (await workers()?.ask(question, { timeoutMs: ANSWER_MS })) ?? [];
  return serve(parts, {
    results: async () => {
      if (workers() === undefined) return [...resultsOf(checks()), { name: "workers", why: "starting" }];
      const answers = (await ask(CHECKS)) as readonly (readonly CheckResult[] | undefined)[];
      return [...resultsOf(checks()), { name: "workers", why: silent(answers) }, ...merged(answers)];
    },
    fault: async () => silent(await ask(CHECKS)),
    metrics: textRoute(async () => {
      const answers = (await ask(METRICS)) as readonly (MetricValues | undefined)[];
      const all = [await readMetrics(registry), ...answers.filter((one) => one !== undefined)];
      return sumMetrics(all);
    }, registry.contentType),
  });
}

async function serve(parts: EndpointParts, source: HealthSource): Promise<AsyncDisposable> {
  const { log, onBug, unready, adminRoutes, metricsFrom, isShared = false } = parts;
  await using opened = new AsyncDisposableStack();
  const clients = { metricsFrom, isShared, authorize: await loginOf(parts, opened) };
  opened.use(
    await serveRoutes({ routes: healthRoutes(source, unready), log, onBug }, { address: parts.health, ...clients }),
  );
  opened.use(
    await serveRoutes({ routes: adminRoutes(source.metrics), log, onBug }, { address: parts.admin, ...clients }),
  );
  opened.use(await serveHeapSnapshots({ log, onBug }, { path: parts.heapSnapshotSocket }));
  return opened.move();
}

async function loginOf(
  { authorization, log }: EndpointParts,
  opened: AsyncDisposableStack,
): Promise<Authorize | undefined> {
  if (authorization === undefined) return undefined;
  const { program, kubeconfig, apiServer } = authorization;
  // The client is more code than the rest of a program without one.
  const { openClient } = await import("../daemon/index.ts");
  const path = kubeconfig === "" ? undefined : kubeconfig;
  const api = opened.use(await openClient(program, { kubeconfig: path, apiServer }, { clock: systemClock }));
  return await metricsLogin(true, { api, log });
}

/** The fault of workers that have not answered. */
function silent(answers: readonly unknown[]): string | undefined {
  const who = answers.flatMap((answer, at) => (answer === undefined ? [at + 1] : []));
  return who.length === 0 ? undefined : `no answer within ${ANSWER_MS} ms from worker ${who.join(", ")}`;
}

/** One result for each check: that of the first worker in which it fails. */
export function merged(answers: readonly (readonly CheckResult[] | undefined)[]): readonly CheckResult[] {
  const results = new Map<string, CheckResult>();
  for (const [at, answer] of answers.entries()) {
    for (const { name, why } of answer ?? []) {
      if (results.get(name)?.why !== undefined) continue;
      results.set(name, why === undefined ? { name } : { name, why: `worker ${at + 1}: ${why}` });
    }
  }
  return [...results.values()];
}
