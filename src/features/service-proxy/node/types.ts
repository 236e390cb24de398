import type { Cidr } from "#base/ip";

/** How packets of pods are recognized (docs/spec/service-proxy.md#2.10). */
export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

/** The configuration that the rules and plans of a node depend on. */
export interface NodeConfig {
  readonly nodeName: string;
  /** One bit of the packet mark. */
  readonly mark: number;
  readonly masqueradeAll: boolean;
  readonly nodePortAddresses: "primary" | readonly Cidr[];
  readonly detectLocalMode: DetectLocalMode;
  readonly clusterCIDRs: readonly Cidr[];
  /** The bridge, for the mode `BridgeInterface`. */
  readonly podBridgeInterface: string;
  /** The prefix, for the mode `InterfaceNamePrefix`. */
  readonly podInterfaceNamePrefix: string;
}
