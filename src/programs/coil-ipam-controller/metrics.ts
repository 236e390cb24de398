import { Counter, Gauge, Histogram, type Registry } from "#base/metrics";
import type { PoolManager, PoolStats } from "#features/ipam";

/** Declares the metrics of pools. A pool has series as long as it exists. There are no series before the call of `observe`. */
export function poolMetrics(registry: Registry): { readonly observe: (pools: Pick<PoolManager, "stats">) => void } {
  let pools: Pick<PoolManager, "stats"> | undefined;
  const gauge = (name: string, help: string, value: (stats: PoolStats) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ["pool"],
      registers: [registry],
      collect() {
        this.reset();
        for (const stats of pools?.stats ?? []) this.set({ pool: stats.pool }, value(stats));
      },
    });
  };
  gauge("coil_controller_max_blocks", "The maximum number of address blocks of a pool.", (stats) => stats.maxBlocks);
  gauge(
    "coil_controller_allocated_blocks",
    "Address blocks of a pool that belong to nodes.",
    (stats) => stats.allocatedBlocks,
  );
  return {
    observe: (given) => {
      pools = given;
    },
  };
}

/** The callbacks of the webhook server and of the certificate's rotation. */
export interface WebhookMetrics {
  readonly answered: (sample: { readonly path: string; readonly code: number; readonly durationMs: number }) => void;
  readonly certificate: (
    event: { readonly loaded: true; readonly notAfter: number } | { readonly loaded: false },
  ) => void;
  readonly renewed: () => void;
}

/** Declares the metrics of webhooks, under controller-runtime's names where it has them. */
export function webhookMetrics(registry: Registry): WebhookMetrics {
  const requests = new Counter({
    name: "controller_runtime_webhook_requests_total",
    help: "Answers to admission reviews. webhook: the path. code: the HTTP status.",
    labelNames: ["webhook", "code"] as const,
    registers: [registry],
  });
  const seconds = new Histogram({
    name: "controller_runtime_webhook_latency_seconds",
    help: "Time of an admission review.",
    labelNames: ["webhook"] as const,
    registers: [registry],
  });
  const loads = new Counter({
    name: "certwatcher_read_certificate_total",
    help: "Webhook certificates that were loaded.",
    registers: [registry],
  });
  const failures = new Counter({
    name: "certwatcher_read_certificate_errors_total",
    help: "Failed attempts to load the webhook certificate: a file is missing or broken, or the key does not match.",
    registers: [registry],
  });
  const expiry = new Gauge({
    name: "coil_controller_webhook_certificate_expiry_timestamp_seconds",
    help: "When the webhooks' certificate expires, seconds since the epoch. 0: there is no certificate.",
    registers: [registry],
  });
  const renewals = new Counter({
    name: "coil_controller_webhook_certificate_renewals_total",
    help: "Certificates that this process has made (--enable-cert-rotation).",
    registers: [registry],
  });
  return {
    answered: ({ path, code, durationMs }) => {
      requests.inc({ webhook: path, code: String(code) });
      seconds.observe({ webhook: path }, durationMs / 1000);
    },
    certificate: (event) => {
      if (!event.loaded) return failures.inc();
      loads.inc();
      expiry.set(event.notAfter / 1000);
    },
    renewed: () => renewals.inc(),
  };
}
