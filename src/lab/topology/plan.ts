import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { LabNode } from "./lab-node.ts";
import { planUplinks, type Uplinks } from "./uplinks.ts";

/** The families that nodes and pods have. */
export type NodeFamilies = "ipv4" | "ipv6" | "dual";

/** Lab names become parts of namespace names. */
export const LAB_NAME_PATTERN = /^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$/;

/** Everything that makes the machines of a lab, as plain data. */
export interface Topology {
  readonly lab: string;
  readonly families: readonly IpFamily[];
  /** The namespace of the bridge and of the control plane. */
  readonly fabric: string;
  readonly bridge: string;
  /** The bridge's own addresses: the nodes' gateway, and where they reach the API server. */
  readonly gateways: readonly IpAddress[];
  /** The network of the nodes, one prefix for each family. */
  readonly networks: readonly Cidr[];
  readonly nodes: readonly LabNode[];
  /** The control plane's machine, where it is apart from the nodes, behind a firewall; else it is in the fabric. */
  readonly controlPlane: LabNode | undefined;
  /** Where the first node has two uplinks to a small internet. */
  readonly uplinks: Uplinks | undefined;
}

const NETWORKS = { 4: Cidr.parse("172.31.0.0/20"), 6: Cidr.parse("fd31:0:0:1::/64") } as const;
const CONTROL_PLANE_OFFSET = 2;
/** Node 1 has the address with this offset. */
const FIRST_NODE_OFFSET = 11;

/** Pure: names and addresses of a lab with so many nodes. */
export function planTopology(options: {
  readonly lab: string;
  readonly nodes: number;
  readonly families: NodeFamilies;
  /** Puts the control plane into a namespace of its own. */
  readonly tunnel: boolean;
  /** Gives the first node two uplinks. Default false. */
  readonly uplinks?: boolean;
  /** What names of nodes begin with, where names are shared with others. Default: nothing. */
  readonly nodePrefix?: string;
}): Topology {
  const families: readonly IpFamily[] = options.families === "dual" ? [4, 6] : options.families === "ipv4" ? [4] : [6];
  const prefix = `isthmus-${options.lab}-`;
  const nodes = Array.from({ length: options.nodes }, (_, at) => ({
    name: `${options.nodePrefix ?? ""}node${at + 1}`,
    netns: `${prefix}node${at + 1}`,
    addresses: families.map((family) => NETWORKS[family].at(FIRST_NODE_OFFSET + at)),
    port: `node${at + 1}`,
  }));
  const [first] = nodes;
  return {
    lab: options.lab,
    families,
    fabric: `${prefix}fabric`,
    bridge: "fabric",
    gateways: families.map((family) => NETWORKS[family].at(1)),
    networks: families.map((family) => NETWORKS[family]),
    nodes,
    controlPlane: options.tunnel
      ? {
          name: "control-plane",
          netns: `${prefix}cp`,
          addresses: families.map((family) => NETWORKS[family].at(CONTROL_PLANE_OFFSET)),
          port: "cp",
        }
      : undefined,
    uplinks: options.uplinks === true && first !== undefined ? planUplinks(options.lab, families, first) : undefined,
  };
}
