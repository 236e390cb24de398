import type { IpFamily } from "#base/ip";
import type { PodDetector } from "#features/service-proxy";
import type { ServiceProxyConfig } from "./config.ts";
import type { NodeState } from "./node-state.ts";

/** How pods of a family are known; `undefined`: they cannot be told from others. Pure. */
export function detectorOf(config: ServiceProxyConfig, node: NodeState, family: IpFamily): PodDetector | undefined {
  const ofFamily = { clusterCIDR: config.clusterCIDRs, podCIDR: node.podCIDRs };
  switch (config.detectLocalMode) {
    case "ClusterCIDR":
    case "NodeCIDR": {
      const cidrs = config.detectLocalMode === "NodeCIDR" ? ofFamily.podCIDR : ofFamily.clusterCIDR;
      const cidr = cidrs.find((one) => one.family === family);
      return cidr === undefined ? undefined : { kind: "source", cidr };
    }
    case "BridgeInterface":
      return { kind: "interface", name: config.podBridgeInterface };
    case "InterfaceNamePrefix":
      return { kind: "interface-prefix", prefix: config.podInterfaceNamePrefix };
  }
}
