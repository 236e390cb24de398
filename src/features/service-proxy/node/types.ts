import type { Cidr } from "#base/ip";

/** The way in which packets of pods are recognized (docs/spec/service-proxy.md#2.10). */
export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

/** Which addresses of the node take NodePorts, as it is configured. */
export interface NodePortPlaces {
  /** The Node's address of each family. */
  readonly hasPrimary: boolean;
  /** The host's addresses in these ranges. */
  readonly ranges: readonly Cidr[];
  /** The loopback addresses, by listeners of the program. */
  readonly hasLocalhost?: boolean;
}

/** The configuration that the rules and plans of a node depend on. */
export interface NodeConfig {
  readonly nodeName: string;
  /** One bit of the packet mark. */
  readonly mark: number;
  readonly masqueradeAll: boolean;
  readonly nodePortAddresses: NodePortPlaces;
  readonly detectLocalMode: DetectLocalMode;
  readonly clusterCIDRs: readonly Cidr[];
  /** The bridge, for the mode `BridgeInterface`. */
  readonly podBridgeInterface: string;
  /** The prefix, for the mode `InterfaceNamePrefix`. */
  readonly podInterfaceNamePrefix: string;
}
