import type { Topology } from "#lab/topology";
import type { LabPaths } from "./state.ts";
import type { ChildSpec } from "./supervisor.ts";

/** The programs of a lab: as shipped, each in the namespace of its node, with the flags that a node would give. */
export function programsOf(at: {
  readonly topology: Topology;
  readonly paths: LabPaths;
  readonly isthmus: readonly string[];
  readonly coildFlags: readonly string[];
}): readonly (Omit<ChildSpec, "netns"> & { readonly netns: string })[] {
  const { topology, paths } = at;
  const env = { PATH: process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin", COIL_POD_NAMESPACE: "kube-system" };
  const program = (name: string, netns: string, node: string | undefined, flags: readonly string[]) => {
    const child = node === undefined ? name : `${name}-${node}`;
    return {
      name: child,
      argv: [...at.isthmus, name, `--kubeconfig=${paths.nodeKubeconfig}`, ...flags],
      env: { ...env, COIL_POD_NAME: child, ...(node === undefined ? {} : { COIL_NODE_NAME: node }) },
      netns,
      log: paths.logOf(child),
    };
  };
  return [
    program("coil-ipam-controller", topology.fabric, undefined, []),
    ...topology.nodes.map((node) =>
      program("coild", node.netns, node.name, [`--socket=${paths.socketOf(node.name)}`, ...at.coildFlags]),
    ),
    ...topology.nodes.map((node) => program("coil-router", node.netns, node.name, [])),
  ];
}
