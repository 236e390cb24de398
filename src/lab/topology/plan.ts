import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { LabNode } from "./lab-node.ts";
import { netnsOf } from "./names.ts";
import { type Outside, planOutside } from "./outside.ts";
import { planUplinks, type Uplinks } from "./uplinks.ts";

/** The families that nodes and pods have. */
export type NodeFamilies = "ipv4" | "ipv6" | "dual";

/** Lab names become parts of namespace names. */
export const LAB_NAME_PATTERN = /^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$/;

/** The machines of a lab as plain data. */
export interface Topology {
  readonly lab: string;
  readonly families: readonly IpFamily[];
  /** The namespace of the bridge and of the control plane. */
  readonly fabric: string;
  readonly bridge: string;
  /** The bridge's own addresses: the nodes' gateway, and without a tunnel their address of the API server. */
  readonly gateways: readonly IpAddress[];
  /** The network of the nodes, one prefix for each family. */
  readonly networks: readonly Cidr[];
  readonly nodes: readonly LabNode[];
  /** The control plane's namespace behind a firewall; `undefined`: the control plane is in the fabric. */
  readonly controlPlane: LabNode | undefined;
  /** The two uplinks of the first node to a small internet; `undefined`: it has none. */
  readonly uplinks: Uplinks | undefined;
  /** A network that knows only the routers of Egresses; `undefined`: there is none. */
  readonly outside: Outside | undefined;
}

const NETWORKS = { 4: Cidr.parse("172.31.0.0/20"), 6: Cidr.parse("fd31:0:0:1::/64") } as const;
const CONTROL_PLANE_OFFSET = 2;
/** Offset of node 1's address in the network. */
const FIRST_NODE_OFFSET = 11;

/** Pure: names and addresses of a lab. */
export function planTopology(options: {
  readonly lab: string;
  readonly nodes: number;
  readonly families: NodeFamilies;
  /** Puts the control plane into a namespace of its own. */
  readonly tunnel: boolean;
  /** Gives the first node two uplinks. Default false. */
  readonly uplinks?: boolean;
  /** Joins a network outside the cluster to the fabric. Default false. */
  readonly egress?: boolean;
  /** Prefix of names of nodes, on a cluster that others use too. Default: none. */
  readonly nodePrefix?: string;
}): Topology {
  const families: readonly IpFamily[] = options.families === "dual" ? [4, 6] : options.families === "ipv4" ? [4] : [6];
  const nodes = Array.from({ length: options.nodes }, (_, at) => ({
    name: `${options.nodePrefix ?? ""}node${at + 1}`,
    netns: netnsOf(options.lab, `node${at + 1}`),
    addresses: families.map((family) => NETWORKS[family].at(FIRST_NODE_OFFSET + at)),
    port: `node${at + 1}`,
  }));
  const [first] = nodes;
  return {
    lab: options.lab,
    families,
    fabric: netnsOf(options.lab, "fabric"),
    bridge: "fabric",
    gateways: families.map((family) => NETWORKS[family].at(1)),
    networks: families.map((family) => NETWORKS[family]),
    nodes,
    controlPlane: options.tunnel
      ? {
          name: "control-plane",
          netns: netnsOf(options.lab, "cp"),
          addresses: families.map((family) => NETWORKS[family].at(CONTROL_PLANE_OFFSET)),
          port: "cp",
        }
      : undefined,
    uplinks: options.uplinks === true && first !== undefined ? planUplinks(options.lab, families, first) : undefined,
    outside: options.egress === true ? planOutside(options.lab, families) : undefined,
  };
}
