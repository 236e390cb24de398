import type { LabNode, Topology } from "#lab/topology";

/** The port of `/healthz` of a node's proxy. */
const HEALTH_PORT = 10_256;
/** Prefix of the names of pods' links on a node. */
const POD_LINKS = "veth";
const BACKEND = { program: "lab-backend", port: 8080, lingerMs: 6000 } as const;

/** The Services of a lab as plain data: the place of clients, the ports of nodes, the command of pods. */
export interface LabServices {
  /** The namespace of clients and load balancers outside the cluster. */
  readonly outside: string;
  /** The addresses of that namespace, one of each family. */
  readonly addresses: readonly string[];
  readonly healthPort: number;
  readonly backend: { readonly command: readonly string[]; readonly port: number };
}

/** Pure: the Services of a lab; `undefined` if nodes have no `service-proxy`. */
export function planLabServices(
  { fabric, gateways }: Pick<Topology, "fabric" | "gateways">,
  { services, isthmus }: { readonly services: boolean; readonly isthmus: readonly string[] },
): LabServices | undefined {
  if (!services) return undefined;
  const { program, port, lingerMs } = BACKEND;
  return {
    outside: fabric,
    addresses: gateways.map(String),
    healthPort: HEALTH_PORT,
    backend: { command: [...isthmus, program, `--port=${port}`, `--linger=${lingerMs}ms`], port },
  };
}

/** Pure: the flags of a node's `service-proxy`. Settings of the whole machine are not changed, because other labs use it. */
export function serviceProxyFlags({ name }: Pick<LabNode, "name">): readonly string[] {
  return [
    `--hostname-override=${name}`,
    "--detect-local-mode=InterfaceNamePrefix",
    `--pod-interface-name-prefix=${POD_LINKS}`,
    "--min-sync-period=0s",
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--oom-score-adj=0",
  ];
}
