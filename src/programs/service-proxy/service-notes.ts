import type { Logger } from "#base/log";
import { lacksHealthPort } from "#features/service-health";
import type { Service } from "#kube/client";

interface NoteOptions {
  /** Gate `AllowServiceExternalIPs`. */
  readonly allowExternalIPs: boolean;
}

/** Something about a Service that its owner had better know. */
interface Note {
  readonly level: "warn" | "error";
  readonly applies: (service: Service, options: NoteOptions) => boolean;
  readonly message: string;
  readonly fix: string;
}

const NOTES: readonly Note[] = [
  {
    // docs/spec/service-proxy.md#1.5.
    level: "error",
    applies: lacksHealthPort,
    message: "Service needs a health check port and has none: its load balancer will send nothing here",
    fix: "give spec.healthCheckNodePort, or write it again so that the API server allocates one",
  },
  {
    // docs/spec/service-proxy.md#2.1.
    level: "warn",
    applies: ({ spec }, { allowExternalIPs }) => allowExternalIPs && (spec?.externalIPs ?? []).length > 0,
    message:
      "Service has spec.externalIPs, which Kubernetes is giving up: anybody who may write Services takes addresses by it",
    fix: "use type LoadBalancer; --feature-gates=AllowServiceExternalIPs=false turns them off",
  },
];

/** Tells once of each thing about each Service, and again when it comes to be so anew. */
export function serviceNotes(log: Logger, options: NoteOptions): (name: string, service: Service | undefined) => void {
  // Of those that the API server has: what is gone is forgotten.
  const told = NOTES.map(() => new Set<string>());
  return (name, service) => {
    for (const [at, { level, applies, message, fix }] of NOTES.entries()) {
      const known = told[at];
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
