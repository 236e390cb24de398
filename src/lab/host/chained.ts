import { existsSync } from "node:fs";
import { join } from "node:path";
import { Cidr } from "#base/ip";
import type { Kernel } from "#kernel/net";
import type { CniPluginSettings } from "#lab/kubelet";
import type { LabNode, Topology } from "#lab/topology";
import { LabError } from "./errors.ts";

/** The folders into which Debian and the plugins' own releases install them. */
const PLUGIN_DIRS = ["/usr/lib/cni", "/opt/cni/bin"] as const;
const RANGES = { 4: Cidr.parse("10.102.0.0/16"), 6: Cidr.parse("fd10:102::/56") } as const;
const NODE_PREFIX = { 4: 24, 6: 64 } as const;
const NETWORK = "k8s-pod-network";

/** The pods' network of a lab whose `coil` is behind `ptp` and `host-local`, as plain data. */
export interface LabChained {
  /** The folder of the plugins. */
  readonly pluginDir: string;
  /** The prefixes of each node's pods, by the node's name. */
  readonly ranges: Readonly<Record<string, readonly string[]>>;
}

/** Throws {@link LabError} `start-failed` if the plugins are not installed. */
export function planChained({ nodes, families }: Topology): LabChained {
  const pluginDir = PLUGIN_DIRS.find((dir) => ["ptp", "host-local"].every((name) => existsSync(join(dir, name))));
  if (pluginDir === undefined) {
    throw new LabError(
      "start-failed",
      `--chained: ptp and host-local were not found in ${PLUGIN_DIRS.join(", ")}; install the Debian package containernetworking-plugins`,
    );
  }
  const ranges = nodes.map((node, at): [string, string[]] => [
    node.name,
    families.map((family) => String(RANGES[family].subnet(NODE_PREFIX[family], at))),
  ]);
  return { pluginDir, ranges: Object.fromEntries(ranges) };
}

/** The chain of a node: `ptp` makes the pods' interfaces, `coil` is behind it. */
export function chainOf(
  chained: LabChained,
  node: LabNode,
  at: { readonly coil: string; readonly socket: string; readonly dataDir: string },
): readonly CniPluginSettings[] {
  // The newest version that Debian 12's plugins know.
  const common = { cniVersion: "1.0.0", name: NETWORK };
  const ranges = (chained.ranges[node.name] ?? []).map((subnet) => [{ subnet }]);
  const routes = (chained.ranges[node.name] ?? []).map((subnet) => ({
    dst: subnet.includes(":") ? "::/0" : "0.0.0.0/0",
  }));
  const ipam = { type: "host-local", ranges, routes, dataDir: at.dataDir };
  return [
    { executable: join(chained.pluginDir, "ptp"), config: { ...common, type: "ptp", ipam } },
    { executable: at.coil, config: { ...common, type: "coil", socket: at.socket } },
  ];
}

/** Lets the nodes forward, and routes each node's range to it: the plugins do not do that. Throws `KernelError`. */
export function routeRanges(kernel: Kernel, { nodes }: Topology, chained: LabChained): void {
  for (const node of nodes) {
    using netns = kernel.openNetNs({ name: node.netns });
    using stack = kernel.openStack(netns);
    stack.sysctl.set("net/ipv4/ip_forward", "1");
    stack.sysctl.set("net/ipv6/conf/all/forwarding", "1");
    for (const other of nodes.filter(({ name }) => name !== node.name)) {
      for (const dst of (chained.ranges[other.name] ?? []).map((text) => Cidr.parse(text))) {
        const gateway = other.addresses.find(({ family }) => family === dst.base.family);
        if (gateway !== undefined) stack.routes.add({ dst, gateway });
      }
    }
  }
}
