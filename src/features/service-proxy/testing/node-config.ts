import type { NodeConfig } from "../node/index.ts";

/** The defaults of the program, with some changes. */
export function nodeConfig(changes: Partial<NodeConfig> = {}): NodeConfig {
  return {
    nodeName: "n",
    mark: 0x4000,
    masqueradeAll: false,
    nodePortAddresses: "primary",
    detectLocalMode: "ClusterCIDR",
    clusterCIDRs: [],
    podBridgeInterface: "",
    podInterfaceNamePrefix: "",
    ...changes,
  };
}
