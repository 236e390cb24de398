import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { HealthPart } from "#base/health";
import { type Logger, Repeats } from "#base/log";
import { repeat } from "#base/reconcile";
import { isBeingDeleted, type NodeIpam } from "#features/ipam";
import { findObject, isApiFailure, isKubeError, type KubeApi, type Node, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { createInformer, type InformerHealth } from "#kube/informer";
import type { OwnNode } from "./own-node.ts";

/** Interval at which objects are polled if they cannot be watched, milliseconds, plus or minus a random part of up to a quarter. */
const POLL_MS = 15_000;

/**
 * Watches this Node and its blocks, so that changes are known at once: a block is removed or allotted late, the Node is deleted or created
 * again (docs/spec/pod-network.md#20). Without the watch the next comparison finds them. Failures of the API go to `health`; lasts until
 * the signal aborts.
 */
export async function watchOwnObjects(
  parts: {
    readonly api: KubeApi;
    readonly ipam: Pick<NodeIpam, "noteBlock" | "noteBlockGone" | "noteNode" | "noteApiReturn">;
    readonly ownNode: Pick<OwnNode, "see">;
    readonly nodeName: string;
    readonly health: HealthPart;
    readonly log: Logger;
  },
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const { api, ipam, ownNode, nodeName, health, log } = parts;
  const failing = new Set<string>();
  const repeats = new Repeats();
  /** Returns the health callback of one kind of objects. The part is ok if all kinds are ok. */
  const healthOf =
    (plural: string) =>
    (state: InformerHealth): void => {
      if (state.state === "ready") {
        if (failing.delete(plural)) ipam.noteApiReturn();
        repeats.forget(plural);
        if (failing.size === 0) health.ok();
        return;
      }
      failing.add(plural);
      health.degraded(state.error);
      if (!repeats.isNew(plural, state.error.message)) return;
      const right = isKubeError(state.error, "forbidden")
        ? { missingRight: `${plural}: list, watch`, meanwhile: "coild polls them" }
        : {};
      log.warn("watching this node's objects failed; trying again", { error: state.error.message, ...right });
    };
  // The comparisons are live. At the start of a whole cluster the API server answers these lists from its cache.
  const nodes = createInformer(api, resources.nodes, {
    firstList: "any",
    fieldSelector: `metadata.name=${nodeName}`,
    onHealth: healthOf("nodes"),
    clock: systemClock,
  });
  const onNode = (node: Node): void => {
    ownNode.see(node);
    repeats.forget("node");
    ipam.noteNode(true);
  };
  const onNodeGone = (): void => {
    ownNode.see(undefined);
    if (repeats.isNew("node", "gone"))
      log.warn("this Node was deleted: nothing is allocated until the Node exists again", { node: nodeName });
    ipam.noteNode(false);
  };
  nodes.addHandler({
    onAdd: onNode,
    onUpdate: (_before, node) => onNode(node),
    onDelete: onNodeGone,
  });
  const blocks = createInformer(api, coilResources.addressBlocks, {
    firstList: "any",
    labelSelector: `${NODE_LABEL}=${nodeName}`,
    onHealth: healthOf("addressblocks"),
    clock: systemClock,
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
  const pollNode = async (signal: AbortSignal): Promise<void> => {
    try {
      const node = await findObject(api, resources.nodes, { name: nodeName }, { signal });
      if (node === undefined) onNodeGone();
      else onNode(node);
    } catch (error) {
      // The watch reports the API server's failures.
      if (!isApiFailure(error)) throw error;
    }
  };
  // The comparisons do not need the watch, so the program is ready before the watch has started.
  health.ok();
  const group = new TaskGroup(options.signal);
  group.spawn((signal) => nodes.run({ signal }));
  group.spawn((signal) => blocks.run({ signal }));
  const pauseMs = (): number => POLL_MS * (0.75 + Math.random() / 2);
  group.spawn((signal) =>
    repeat(
      async () => {
        if (failing.has("addressblocks")) ipam.noteApiReturn();
        if (failing.has("nodes")) await pollNode(signal);
        return { againMs: pauseMs() };
      },
      { signal, clock: systemClock, everyMs: pauseMs(), startsIdle: true },
    ),
  );
  await group.wait();
}
