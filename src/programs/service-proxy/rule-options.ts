import type { IpAddress, IpFamily } from "#base/ip";
import type { NodeContext, RuleOptions } from "#features/service-proxy";
import type { ServiceProxyConfig } from "./config.ts";
import { detectorOf } from "./detector.ts";
import { nodePortPlaces } from "./node-ports.ts";
import { addressOf, type NodeState } from "./node-state.ts";

/** What a family's rules depend on; the proxy and `explain` ask the same. Pure. `local`: every address of the host. */
export function ruleOptionsOf(
  config: ServiceProxyConfig,
  node: NodeState,
  family: IpFamily,
  local: readonly IpAddress[],
): RuleOptions {
  const { mark, masqueradeAll } = config;
  const { mode } = nodePortPlaces(config, family, local, addressOf(node, family));
  return { family, mark, masqueradeAll, detector: detectorOf(config, node, family), nodePortAddresses: mode };
}

/** What of the Node counts for a family's plans. Pure. */
export function contextOf(
  { nodeName }: Pick<ServiceProxyConfig, "nodeName">,
  node: NodeState,
  family: IpFamily,
): NodeContext {
  const nodeIP = addressOf(node, family);
  return { node: { name: nodeName, zone: node.zone }, nodeIPs: nodeIP === undefined ? [] : [nodeIP] };
}
