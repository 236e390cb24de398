import { Counter, Gauge, type Registry } from "#base/metrics";
import type { HealthCheck, NodeHealth } from "../state/index.ts";

const CHECKS = ["healthz", "livez"] as const;
const CODES = ["200", "503"] as const;

/**
 * The metrics of node health (docs/spec/service-proxy.md#1.7); all known label values are there from the start. Returns what the health
 * server tells of each answer.
 */
export function healthMetrics(
  registry: Registry,
  health: Pick<NodeHealth, "passes" | "isNodeEligible">,
): (check: HealthCheck, code: 200 | 503) => void {
  const answers = { healthz: answerCounter(registry, "healthz"), livez: answerCounter(registry, "livez") };
  new Gauge({
    name: "kubeproxy_health_state",
    help: "1 while the check passes, else 0.",
    labelNames: ["check"],
    registers: [registry],
    collect() {
      for (const check of CHECKS) this.set({ check }, Number(health.passes(check)));
    },
  });
  new Gauge({
    name: "kubeproxy_node_eligible",
    help: "0 while the Node is unknown, being deleted, or tainted to be.",
    registers: [registry],
    collect() {
      this.set(Number(health.isNodeEligible));
    },
  });
  return (check, code) => answers[check].inc({ code: String(code) });
}

function answerCounter(registry: Registry, check: HealthCheck): Counter<"code"> {
  const counter = new Counter({
    name: `kubeproxy_proxy_${check}_total`,
    help: `Answers on /${check} by status code.`,
    labelNames: ["code"],
    registers: [registry],
  });
  for (const code of CODES) counter.inc({ code }, 0);
  return counter;
}
