import { TaskGroup } from "#base/async";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { isBeingDeleted, type NodeIpam } from "#features/ipam";
import type { PodNetwork } from "#features/pod-network";
import { type KubeApi, type Node, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { createInformer, type InformerHealth } from "#kube/informer";
import { internalAddresses } from "./node.ts";

/**
 * Watches this Node and its blocks, so that what others do to them is known at once: a block that is taken away, or given
 * late, a Node that is deleted or comes back (spec pod-network 20). Without it all is found by the next comparison. The API's
 * failures go to `health`; lasts until the signal aborts.
 */
export async function watchOwnObjects(
  parts: {
    readonly api: KubeApi;
    readonly ipam: Pick<NodeIpam, "noteBlock" | "noteBlockGone" | "noteNode">;
    readonly network: Pick<PodNetwork, "setNodeAddresses">;
    readonly nodeName: string;
    readonly health: HealthPart;
    readonly log: Logger;
  },
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const { api, ipam, network, nodeName, health, log } = parts;
  const onHealth = (state: InformerHealth): void => {
    if (state.state === "ready") {
      health.ok();
      return;
    }
    health.degraded(state.error);
    if (state.failures === 1)
      log.warn("watching this node's objects failed; trying again", { error: state.error.message });
  };
  const nodes = createInformer(api, resources.nodes, { fieldSelector: `metadata.name=${nodeName}`, onHealth });
  const onNode = (node: Node): void => {
    const addresses = internalAddresses(node);
    // One that has just been made has none yet: those of before stay.
    if (addresses.ipv4 !== undefined || addresses.ipv6 !== undefined) network.setNodeAddresses(addresses);
    ipam.noteNode(true);
  };
  nodes.addHandler({
    onAdd: onNode,
    onUpdate: (_before, node) => onNode(node),
    onDelete: () => {
      log.warn("this Node was deleted: nothing is allocated until it is back", { node: nodeName });
      ipam.noteNode(false);
    },
  });
  const blocks = createInformer(api, coilResources.addressBlocks, {
    labelSelector: `${NODE_LABEL}=${nodeName}`,
    onHealth,
  });
  const onBlock = ({ metadata }: AddressBlock): void =>
    ipam.noteBlock({
      uid: metadata.uid,
      pool: metadata.labels?.[POOL_LABEL] ?? "",
      deleting: isBeingDeleted(metadata),
    });
  blocks.addHandler({
    onAdd: onBlock,
    onUpdate: (_before, block) => onBlock(block),
    onDelete: ({ metadata }) => ipam.noteBlockGone(metadata.uid),
  });
  // The comparisons do without it, so it keeps nobody waiting.
  health.ok();
  const group = new TaskGroup(options.signal);
  group.spawn((signal) => nodes.run({ signal }));
  group.spawn((signal) => blocks.run({ signal }));
  await group.wait();
}
