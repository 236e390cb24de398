/**
 * Health of a program by named part, and the HTTP endpoints that show it: `/healthz`, `/readyz` (both with `?verbose`),
 * `/metrics`.
 *
 * ```ts
 * const health = new Health();
 * const socket = health.part("socket"); // not ready until its first report
 * socket.ok("listening");
 * await using server = await serveHealth({ health }, { address: { port: 9385 } });
 * ```
 */
export { Health, type HealthPart } from "./health.ts";
export { HealthServerError, type Readiness, readiness, serveHealth, serveMetrics } from "./server.ts";
