import type { IpFamily } from "#base/ip";
import type { PodDetector } from "../rules/index.ts";
import type { NodeNetwork } from "./node-network.ts";
import type { NodeConfig } from "./types.ts";

/** Returns how packets of pods are recognized in a family. `undefined`: they cannot be recognized. Pure. */
export function detectorOf(config: NodeConfig, node: NodeNetwork, family: IpFamily): PodDetector | undefined {
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
