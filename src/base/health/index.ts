/**
 * Health of a program by named part, and the text that shows it.
 *
 * ```ts
 * const health = new Health();
 * const socket = health.part("socket"); // not ready until its first report
 * socket.ok("listening");
 * const { isReady, text } = readiness(health, { isVerbose: true });
 * ```
 */
export { Health, type HealthPart } from "./health.ts";
export { type Readiness, readiness } from "./readiness.ts";
