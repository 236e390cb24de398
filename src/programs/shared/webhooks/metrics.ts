import { Counter, Gauge, Histogram, type Registry } from "#base/metrics";

/** The callbacks of the webhook server and of the certificate's rotation. */
export interface WebhookMetrics {
  readonly answered: (sample: { readonly path: string; readonly code: number; readonly durationMs: number }) => void;
  /** `part`: whose certificate it is, if a program has several. */
  readonly certificate: (
    part: string,
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
    help: "When the webhooks' certificate expires, seconds since the epoch; of several the first. 0: there is no certificate.",
    registers: [registry],
  });
  const renewals = new Counter({
    name: "coil_controller_webhook_certificate_renewals_total",
    help: "Certificates that this process has made (--enable-cert-rotation).",
    registers: [registry],
  });
  const expiries = new Map<string, number>();
  return {
    answered: ({ path, code, durationMs }) => {
      requests.inc({ webhook: path, code: String(code) });
      seconds.observe({ webhook: path }, durationMs / 1000);
    },
    certificate: (part, event) => {
      if (!event.loaded) return failures.inc();
      loads.inc();
      expiries.set(part, event.notAfter / 1000);
      expiry.set(Math.min(...expiries.values()));
    },
    renewed: () => renewals.inc(),
  };
}
