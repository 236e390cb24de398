import { Counter, Gauge, Histogram, type Registry, startAtZero } from "#base/metrics";
import { restClientMetrics } from "../metrics/index.ts";
import { asideMetrics } from "../pass-record/index.ts";

/** Outcomes of a reconciliation. */
const RESULTS = ["success", "error", "requeue_after"] as const;

/** Declares the reconcile metrics of controller-runtime. Returns a function from the name of a `Controller` to its callbacks. */
export function reconcileMetrics(registry: Registry) {
  const labelNames = ["controller", "result"] as const;
  const total = new Counter({
    name: "controller_runtime_reconcile_total",
    help: "Reconciliations. result: success, error, requeue_after.",
    labelNames,
    registers: [registry],
  });
  const errors = new Counter({
    name: "controller_runtime_reconcile_errors_total",
    help: "Reconciliations that failed.",
    labelNames: ["controller"] as const,
    registers: [registry],
  });
  const panics = new Counter({
    name: "controller_runtime_reconcile_panics_total",
    help: "Reconciliations that failed because of a bug; the log has its stack.",
    labelNames: ["controller"] as const,
    registers: [registry],
  });
  const seconds = new Histogram({
    name: "controller_runtime_reconcile_time_seconds",
    help: "Time of a reconciliation.",
    labelNames: ["controller"] as const,
    registers: [registry],
  });
  const depth = new Gauge({
    name: "workqueue_depth",
    help: "Objects that wait for a reconciliation.",
    labelNames: ["name"],
    registers: [registry],
  });
  return (name: string) => {
    const controller = [name];
    startAtZero(total, { controller, result: RESULTS });
    startAtZero(errors, { controller });
    startAtZero(panics, { controller });
    seconds.zero({ controller: name });
    depth.set({ name }, 0);
    return {
      onDepth: (size: number): void => depth.set({ name }, size),
      onReconcile: (sample: {
        readonly result: (typeof RESULTS)[number];
        readonly bug: boolean;
        readonly durationMs: number;
      }): void => {
        total.inc({ controller: name, result: sample.result });
        if (sample.result === "error") errors.inc({ controller: name });
        if (sample.bug) panics.inc({ controller: name });
        seconds.observe({ controller: name }, sample.durationMs / 1000);
      },
    };
  };
}

/** Declares the metric of leadership. Returns a function that sets the metric of a Lease to 0 and returns the callback for changes. */
export function leaderMetrics(registry: Registry): (lease: string) => (isLeader: boolean) => void {
  const gauge = new Gauge({
    name: "leader_election_master_status",
    help: "1 while this process holds the Lease of that name, else 0.",
    labelNames: ["name"],
    registers: [registry],
  });
  return (name) => {
    gauge.set({ name }, 0);
    return (isLeader) => gauge.set({ name }, Number(isLeader));
  };
}

/** Declares the metrics of every controller program. */
export function controllerProgramMetrics(registry: Registry): void {
  restClientMetrics(registry);
  reconcileMetrics(registry);
  leaderMetrics(registry);
  asideMetrics(registry);
}
