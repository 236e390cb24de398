import { join } from "node:path";

/** The paths of a lab's files. */
export interface LabPaths {
  readonly dir: string;
  readonly state: string;
  /** For people and for the front end: the API server on loopback. */
  readonly kubeconfig: string;
  /** For the nodes' programs: the API server as they reach it. */
  readonly nodeKubeconfig: string;
  readonly logs: string;
  socketOf(node: string): string;
  logOf(child: string): string;
}

/** Pure: the paths of a lab's files. Creates nothing. */
export function labPaths(lab: string): LabPaths {
  const dir = join("/run/isthmus", `lab-${lab}`);
  return {
    dir,
    state: join(dir, "state.json"),
    kubeconfig: join(dir, "kubeconfig"),
    nodeKubeconfig: join(dir, "kubeconfig-nodes"),
    logs: join(dir, "logs"),
    socketOf: (node) => join(dir, node, "coild.sock"),
    logOf: (child) => join(dir, "logs", `${child}.log`),
  };
}
