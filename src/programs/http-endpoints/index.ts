/**
 * Plain HTTP endpoints of programs for probes, scrapers and operators: routes by path, `/metrics` and profiles.
 *
 * Owns: listening, timeouts, the limit of clients, profiles of this process. Does not know: what a program's paths are.
 *
 * ```ts
 * await using endpoint = await serveRoutes({ routes: { "/metrics": metricsRoute(registry) }, log, onBug }, { address });
 * ```
 */
export { type HttpRoutes, metricsRoute, serveRoutes } from "./http.ts";
export { profilingRoutes } from "./profiling.ts";
