import { Counter, Gauge, type Registry } from "#base/metrics";
import type { RouterObserver } from "./observer.ts";

/** Declares all metrics of the router. Label values are names of routes and backends, never values that clients send. */
export function routerMetrics(registry: Registry): RouterObserver {
  const registers = [registry];
  const total = new Counter({
    name: "sni_router_connections_total",
    help: "Connections by route and what became of them.",
    labelNames: ["route", "result"],
    registers,
  });
  const active = new Gauge({ name: "sni_router_active_connections", help: "Connections that are open.", registers });
  const bytes = new Counter({
    name: "sni_router_bytes_total",
    help: "Bytes passed on.",
    labelNames: ["route", "direction"],
    registers,
  });
  const failures = new Counter({
    name: "sni_router_backend_failures_total",
    help: "Attempts to connect to a backend that failed.",
    labelNames: ["backend"],
    registers,
  });
  return {
    decided: (route, result) => total.inc({ route, result }),
    connected: (clients) => active.set(clients),
    passed: (route, direction, count) => bytes.inc({ route, direction }, count),
    backendFailed: (backend) => failures.inc({ backend }),
  };
}
