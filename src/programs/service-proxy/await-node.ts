import { sleep } from "#base/async";
import type { Logger } from "#base/log";
import { findObject, type KubeApi, KubeError, resources } from "#kube/client";
import type { ServiceProxyConfig } from "./config.ts";
import { type NodeState, nodeState } from "./node-state.ts";

/** How long the Node may take to have addresses, milliseconds (spec service-proxy 2.10). */
const NODE_ADDRESSES_MS = 30_000;
const NODE_POLL_MS = 1000;

/**
 * Waits for the Node's addresses, not for ever: without them NodePorts and the load balancers' own sources are all that lacks. Rejects
 * when the signal aborts.
 */
export async function awaitNode(
  api: KubeApi,
  config: ServiceProxyConfig,
  log: Logger,
  signal: AbortSignal,
): Promise<NodeState> {
  const until = performance.now() + NODE_ADDRESSES_MS;
  for (;;) {
    const state = await readNode(api, config, signal);
    if (state === "unreachable") return noNode(config);
    const known = state === "absent" ? noNode(config) : state;
    if (known.addresses.length > 0) return known;
    if (performance.now() > until) {
      const what = state === "absent" ? "there is no Node of this name" : "the Node has no addresses";
      const fix = "NodePorts and Local policies need it; --hostname-override names another";
      log.warn(`${what}; going on without`, { node: config.nodeName, ...(state === "absent" ? { fix } : {}) });
      return known;
    }
    await sleep(NODE_POLL_MS, { signal });
  }
}

/** An API server that is away is not waited for: the watches go on trying, and what an earlier run left is to be said at once. */
async function readNode(
  api: KubeApi,
  config: ServiceProxyConfig,
  signal: AbortSignal,
): Promise<NodeState | "absent" | "unreachable"> {
  try {
    const node = await findObject(api, resources.nodes, { name: config.nodeName }, { signal });
    return node === undefined ? "absent" : nodeState(node, config.bindAddress);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof KubeError)) throw error;
    return "unreachable";
  }
}

function noNode({ bindAddress }: ServiceProxyConfig): NodeState {
  return { addresses: bindAddress === undefined ? [] : [bindAddress], zone: undefined, podCIDRs: [] };
}
