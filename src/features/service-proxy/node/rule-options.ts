import type { IpAddress, IpFamily } from "#base/ip";
import type { RuleOptions } from "../rules/index.ts";
import type { NodeContext } from "../track/index.ts";
import { detectorOf } from "./detector.ts";
import { addressOf, type NodeNetwork } from "./node-network.ts";
import { nodePortAddressesOf } from "./node-port-addresses.ts";
import type { NodeConfig } from "./types.ts";

/** Options of a family's rules, for the proxy and for `explain`. Pure. `local`: all addresses of the host. */
export function ruleOptionsOf(
  config: NodeConfig,
  node: NodeNetwork,
  family: IpFamily,
  local: readonly IpAddress[],
): RuleOptions {
  const { mark, masqueradeAll } = config;
  const { mode } = nodePortAddressesOf(config, family, local, addressOf(node, family));
  return { family, mark, masqueradeAll, detector: detectorOf(config, node, family), nodePortAddresses: mode };
}

/** The part of the Node that a family's plans depend on. Pure. */
export function contextOf(
  { nodeName }: Pick<NodeConfig, "nodeName">,
  node: NodeNetwork,
  family: IpFamily,
): NodeContext {
  const nodeIP = addressOf(node, family);
  return { node: { name: nodeName, zone: node.zone }, nodeIPs: nodeIP === undefined ? [] : [nodeIP] };
}
