import { join } from "node:path";
import type { Topology } from "#lab/topology";
import type { AccountProgram } from "./accounts.ts";
import { EGRESS_COILD_FLAGS, EGRESS_CONTROLLER_FLAGS } from "./egress.ts";
import type { LabPaths } from "./lab-paths.ts";
import { serviceProxyFlags } from "./services.ts";
import type { ChildSpec } from "./supervisor.ts";
import { type LabTunnel, tunnelPrograms } from "./tunnel.ts";
import { type LabUplinks, uplinkProxyFlags } from "./uplinks.ts";
import type { VpcProgram } from "./vpc.ts";

/** A program and the name of the namespace that it runs in. */
export type LabProgram = Omit<ChildSpec, "netns"> & { readonly netns: string };

const ENV = {
  PATH: process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin",
  // The launcher runs the programs by the same Node as this process.
  ISTHMUS_NODE: process.execPath,
};

/** The environment of a program; what it keeps in /run is the lab's. */
function envOf(paths: LabPaths, name: string): Readonly<Record<string, string>> {
  return { ...ENV, RUNTIME_DIRECTORY: join(paths.dir, "run", name) };
}

/** The tunnel's programs. They start first, because the other programs need them. */
export function tunnelProgramsOf(at: {
  readonly topology: Topology;
  readonly paths: LabPaths;
  readonly isthmus: readonly string[];
  readonly tunnel: LabTunnel;
}): readonly LabProgram[] {
  return tunnelPrograms(at.tunnel, at.topology, at.paths).map(({ name, program, netns, flags }) => ({
    name,
    argv: [...at.isthmus, program, ...flags],
    env: envOf(at.paths, name),
    netns,
    log: at.paths.logOf(name),
  }));
}

/** The proxy of the node with uplinks; empty if there is none. */
export function uplinkProgramsOf(at: {
  readonly paths: LabPaths;
  readonly isthmus: readonly string[];
  readonly uplinks: LabUplinks | undefined;
}): readonly LabProgram[] {
  const { paths, isthmus, uplinks } = at;
  if (uplinks === undefined) return [];
  const name = `uplink-proxy-${uplinks.node}`;
  const argv = [...isthmus, "uplink-proxy", ...uplinkProxyFlags(uplinks, paths)];
  return [{ name, argv, env: envOf(paths, name), netns: uplinks.netns, log: paths.logOf(name) }];
}

/** The controller and the agents of NICs. */
export function vpcProgramsOf(at: {
  readonly paths: LabPaths;
  readonly isthmus: readonly string[];
  readonly programs: readonly VpcProgram[];
}): readonly LabProgram[] {
  return at.programs.map(({ program, node, netns, flags }) => {
    const name = node === undefined ? program : `${program}-${node}`;
    return {
      name,
      argv: [...at.isthmus, program, `--kubeconfig=${at.paths.kubeconfigOf(program, node)}`, ...flags],
      env: { ...envOf(at.paths, name), ...(node === undefined ? {} : { COIL_NODE_NAME: node }) },
      netns,
      log: at.paths.logOf(name),
    };
  });
}

/** The service proxy of every node. */
export function serviceProgramsOf(at: {
  readonly topology: Topology;
  readonly paths: LabPaths;
  readonly isthmus: readonly string[];
}): readonly LabProgram[] {
  return at.topology.nodes.map((node) => {
    const name = `service-proxy-${node.name}`;
    const flags = [`--kubeconfig=${at.paths.kubeconfigOf("service-proxy", node.name)}`, ...serviceProxyFlags(node)];
    return {
      name,
      argv: [...at.isthmus, "service-proxy", ...flags],
      env: envOf(at.paths, name),
      netns: node.netns,
      log: at.paths.logOf(name),
    };
  });
}

/** The programs of a lab, each in the namespace of its node, with the flags of a real node. */
export function programsOf(at: {
  readonly topology: Topology;
  readonly paths: LabPaths;
  readonly isthmus: readonly string[];
  readonly coildFlags: readonly string[];
  /** True if `coil` is behind another plugin; then there are no blocks. */
  readonly chained: boolean;
  /** True if the lab runs its own controller; else the cluster has one. */
  readonly controller: boolean;
  /** True if pods can use Egresses. */
  readonly egress: boolean;
}): readonly LabProgram[] {
  const { topology, paths } = at;
  const program = (name: AccountProgram, netns: string, node: string | undefined, flags: readonly string[]) => {
    const child = node === undefined ? name : `${name}-${node}`;
    return {
      name: child,
      argv: [...at.isthmus, name, `--kubeconfig=${paths.kubeconfigOf(name, node)}`, ...flags],
      env: {
        ...envOf(paths, child),
        ...{ COIL_POD_NAMESPACE: "kube-system", COIL_POD_NAME: child },
        ...(node === undefined ? {} : { COIL_NODE_NAME: node }),
      },
      netns,
      log: paths.logOf(child),
    };
  };
  if (at.chained) {
    return topology.nodes.map((node) => {
      const own = [`--socket=${paths.socketOf(node.name)}`, "--enable-ipam=false"];
      return program("coild", node.netns, node.name, [...own, ...at.coildFlags]);
    });
  }
  const coildFlags = [...(at.egress ? EGRESS_COILD_FLAGS : []), ...at.coildFlags];
  // The control plane is behind the firewall, so the controller runs on a node, as in a cluster.
  const home = topology.controlPlane === undefined ? topology.fabric : (topology.nodes[0]?.netns ?? topology.fabric);
  return [
    ...(at.controller ? [program("coil-ipam-controller", home, undefined, ["--webhook-addr=none"])] : []),
    ...(at.egress ? [program("coil-egress-controller", home, undefined, EGRESS_CONTROLLER_FLAGS)] : []),
    ...topology.nodes.map((node) =>
      program("coild", node.netns, node.name, [`--socket=${paths.socketOf(node.name)}`, ...coildFlags]),
    ),
    ...topology.nodes.map((node) => program("coil-router", node.netns, node.name, [])),
  ];
}
