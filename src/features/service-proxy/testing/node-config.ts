import { type NodeConfig, PRIMARY_ADDRESSES } from "../node/index.ts";

/** The defaults of the program, with some changes. */
export function nodeConfig(changes: Partial<NodeConfig> = {}): NodeConfig {
  return {
    nodeName: "n",
    mark: 0x4000,
    masqueradeAll: false,
    nodePortAddresses: PRIMARY_ADDRESSES,
    detectLocalMode: "ClusterCIDR",
    clusterCIDRs: [],
    podBridgeInterface: "",
    podInterfaceNamePrefix: "",
    ...changes,
  };
}
