/**
 * Plain HTTP endpoints of programs for probes, scrapers and operators: health, `/metrics`, profiles.
 *
 * Owns: the ports of a program, profiles and heap snapshots of this process. Does not know: what a program's paths are.
 *
 * ```ts
 * await using endpoint = await serveRoutes({ routes: { "/metrics": metricsRoute(registry) }, log, onBug }, { address });
 * ```
 */

export { heapSnapshotFlag, serveHeapSnapshots } from "./heap-snapshot.ts";
export { HealthServerError, metricsRoute, serveRoutes, textRoute } from "./http.ts";
export { metricsAuthorizationFlag, metricsLogin } from "./metrics-authorization.ts";
export { metricsFromFlag } from "./metrics-from.ts";
export { serveHealth, serveMetrics } from "./probes.ts";
export { profilingRoutes } from "./profiling.ts";
