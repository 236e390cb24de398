import type { IpAddress, IpFamily } from "#base/ip";
import type { Tracker } from "../track/index.ts";

/** The destination of connections to a NodePort. */
export interface LocalTarget {
  readonly address: IpAddress;
  readonly port: number;
}

/** A NodePort of TCP: its Service as `namespace/name`, and its cluster IP and port in each family that it has. */
export interface LocalNodePort {
  readonly service: string;
  readonly targets: ReadonlyMap<IpFamily, LocalTarget>;
}

/** The ports that are served at loopback addresses. */
export interface LocalPlan {
  readonly ports: ReadonlyMap<number, LocalNodePort>;
  /** Number of NodePorts of UDP and SCTP, which are not served. */
  readonly others: number;
}

/** The NodePorts of the Services of both families. Pure. */
export function localNodePorts(
  trackers: Iterable<Pick<Tracker, "family" | "nodePortServices" | "services">>,
): LocalPlan {
  const ports = new Map<number, { service: string; targets: Map<IpFamily, LocalTarget> }>();
  const others = new Set<string>();
  for (const { family, nodePortServices, services } of trackers) {
    for (const service of nodePortServices) {
      for (const { protocol, nodePort, clusterIP, port } of services.get(service) ?? []) {
        if (nodePort === 0) continue;
        if (protocol !== "TCP") {
          others.add(`${protocol} ${nodePort}`);
          continue;
        }
        const known = ports.get(nodePort) ?? { service, targets: new Map() };
        // Two Services with one NodePort are a fault of the cluster: the first one has it.
        if (known.service === service) known.targets.set(family, { address: clusterIP, port });
        ports.set(nodePort, known);
      }
    }
  }
  return { ports, others: others.size };
}
