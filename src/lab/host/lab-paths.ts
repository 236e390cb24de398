import { join } from "node:path";
import type { AccountProgram } from "./accounts.ts";

/** The paths of a lab's files. */
export interface LabPaths {
  readonly dir: string;
  readonly state: string;
  /** The kubeconfig for users and for the front end. It names the API server on loopback. */
  readonly kubeconfig: string;
  /** The kubeconfig of an administrator at the API server's address for nodes. */
  readonly nodeKubeconfig: string;
  /** The kubeconfig of the routers of Egresses, with the rights of their account. */
  readonly routerKubeconfig: string;
  /** The kubeconfig of a program, on a node if it runs there, with the rights of its account. It names the API server's address for nodes. */
  kubeconfigOf(program: AccountProgram, node: string | undefined): string;
  readonly logs: string;
  /** The folder for large files; not below /run, which is memory. */
  readonly disk: string;
  /** The root file system of `--image`, and the folders of nodes with `--upgrade`. */
  readonly image: string;
  /** The files of `--vpc`: database, broker, agents and their logs. */
  readonly neutron: string;
  /** The folder of a node's Open vSwitch. */
  ovsOf(node: string): string;
  /** The log of the program that kept the lab from starting. It outlives the lab, until the next start or `lab down`. */
  readonly failedLog: string;
  socketOf(node: string): string;
  logOf(child: string): string;
}

/** Pure: the paths of a lab's files. Creates nothing. */
export function labPaths(lab: string): LabPaths {
  const dir = join("/run/isthmus", `lab-${lab}`);
  const disk = join("/var/tmp/isthmus", `lab-${lab}`);
  return {
    dir,
    state: join(dir, "state.json"),
    kubeconfig: join(dir, "kubeconfig"),
    nodeKubeconfig: join(dir, "kubeconfig-nodes"),
    routerKubeconfig: join(dir, "kubeconfig-routers"),
    kubeconfigOf: (program, node) => join(dir, `kubeconfig-${program}${node === undefined ? "" : `-${node}`}`),
    logs: join(dir, "logs"),
    disk,
    image: join(disk, "image"),
    neutron: join(disk, "neutron"),
    // Programs of an image have the machine's /run, and no other folder of it.
    ovsOf: (node) => join(dir, node, "ovs"),
    failedLog: `${disk}.failed.log`,
    socketOf: (node) => join(dir, node, "coild.sock"),
    logOf: (child) => join(dir, "logs", `${child}.log`),
  };
}
