import type { Logger } from "#base/log";
import { lacksHealthPort } from "#features/service-health";
import type { Service } from "#kube/client";

/** Tells once of a Service that load balancers cannot ask about (spec service-proxy 1.5), and again when it comes to be so anew. */
export function healthPortWatch(log: Logger): (name: string, service: Service | undefined) => void {
  // Of those that the API server has: what is gone is forgotten.
  const told = new Set<string>();
  return (name, service) => {
    if (service === undefined || !lacksHealthPort(service)) {
      told.delete(name);
      return;
    }
    if (told.has(name)) return;
    told.add(name);
    log.error("Service needs a health check port and has none: its load balancer will send nothing here", {
      service: name,
      fix: "give spec.healthCheckNodePort, or write it again so that the API server allocates one",
    });
  };
}
