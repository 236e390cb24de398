import { Counter, Gauge, type Registry, startAtZero } from "#base/metrics";
import type { RouterObserver } from "./observer.ts";

/** Declares all metrics of the router. Label values are names of routes and backends, never values that clients send. */
export function routerMetrics(registry: Registry): RouterObserver {
  const registers = [registry];
  const total = new Counter({
    name: "sni_router_connections_total",
    help: "Clients, by route and outcome. result: routed, unknown_name, no_name, not_tls, too_large, timeout, no_header, gone, no_backend, overload.",
    labelNames: ["route", "result"],
    registers,
  });
  const active = new Gauge({ name: "sni_router_active_connections", help: "Connected clients.", registers });
  const bytes = new Counter({
    name: "sni_router_bytes_total",
    help: "Relayed bytes. direction: to_backend, to_client.",
    labelNames: ["route", "direction"],
    registers,
  });
  const failures = new Counter({
    name: "sni_router_backend_failures_total",
    help: "Failed attempts to connect to a backend.",
    labelNames: ["backend"],
    registers,
  });
  const reloads = new Counter({
    name: "sni_router_reloads_total",
    help: "Reloads of the routes. result: ok, refused.",
    labelNames: ["result"] as const,
    registers,
  });
  startAtZero(reloads, { result: ["ok", "refused"] });
  return {
    decided: (route, result) => total.inc({ route, result }),
    connected: (clients) => active.set(clients),
    passed: (route, direction, count) => bytes.inc({ route, direction }, count),
    backendFailed: (backend) => failures.inc({ backend }),
    reloaded: (result) => reloads.inc({ result }),
  };
}
