import { startAtZero } from "#base/metrics";
import type { HealthCheck } from "../state/index.ts";
import type { CollectedHealth, ServiceProxyMetrics } from "./service-proxy-metrics.ts";

const CODES = ["200", "503"] as const;

/** Collects the state of node health. Returns the callback that counts answers of the health server. */
export function healthMetrics(
  metrics: Pick<ServiceProxyMetrics, "observeHealth" | "healthzAnswers" | "livezAnswers">,
  health: CollectedHealth,
): (check: HealthCheck, code: 200 | 503) => void {
  const answers = { healthz: metrics.healthzAnswers, livez: metrics.livezAnswers };
  for (const counter of Object.values(answers)) startAtZero(counter, { code: CODES });
  metrics.observeHealth(health);
  return (check, code) => answers[check].inc({ code: String(code) });
}
