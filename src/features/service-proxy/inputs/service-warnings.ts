import type { Logger } from "#base/log";
import type { Service } from "#kube/client";

interface WarningOptions {
  /** Gate `AllowServiceExternalIPs`. */
  readonly allowExternalIPs: boolean;
  /** True if the Service needs a health check port and has none. */
  readonly lacksHealthPort: (service: Service) => boolean;
}

/** A fault of a Service that its owner should know of. */
interface ServiceWarning {
  readonly level: "warn" | "error";
  readonly applies: (service: Service, options: WarningOptions) => boolean;
  readonly message: string;
  readonly fix: string;
}

const WARNINGS: readonly ServiceWarning[] = [
  {
    // docs/spec/service-proxy.md#1.5.
    level: "error",
    applies: (service, { lacksHealthPort }) => lacksHealthPort(service),
    message: "a Service needs a health check port and has none: its load balancer sends no connections to this node",
    fix: "set spec.healthCheckNodePort, or update the Service, so that the API server allocates one",
  },
  {
    // docs/spec/service-proxy.md#2.1.
    level: "warn",
    applies: ({ spec }, { allowExternalIPs }) => allowExternalIPs && (spec?.externalIPs ?? []).length > 0,
    message:
      "a Service has spec.externalIPs, which Kubernetes deprecates: any user who may write Services can take addresses with it",
    fix: "use type LoadBalancer; --feature-gates=AllowServiceExternalIPs=false disables spec.externalIPs",
  },
];

/** Logs each warning once for each Service, and again if the warning ends and then applies again. */
export function serviceWarnings(
  log: Logger,
  options: WarningOptions,
): (name: string, service: Service | undefined) => void {
  // For each warning, the names of the Services that it was logged for. Deleted Services are removed.
  const reported = WARNINGS.map(() => new Set<string>());
  return (name, service) => {
    for (const [at, { level, applies, message, fix }] of WARNINGS.entries()) {
      const known = reported[at];
      if (service === undefined || !applies(service, options)) {
        known?.delete(name);
        continue;
      }
      if (known?.has(name) === true) continue;
      known?.add(name);
      log[level](message, { service: name, fix });
    }
  };
}
