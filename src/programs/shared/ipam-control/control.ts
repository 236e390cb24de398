import { withDeadline } from "#base/async";
import { systemClock } from "#base/clock";
import { choiceFlag, durationFlag, type FlagValues } from "#base/config";
import {
  BlockRequestReconciler,
  FRESH_MS,
  type KnownCluster,
  OrphanCollector,
  PoolManager,
  reconcilePool,
} from "#features/ipam";
import { resources } from "#kube/client";
import { type BlockRequest, blockRequestResult, coilResources, POOL_LABEL } from "#kube/coil";
import type { LeaderPart, LeadingController } from "../controller/index.ts";
import type { Webhooks } from "../webhooks/index.ts";
import { poolMetrics } from "./metrics.ts";

/** The flags of address management. */
export const ipamFlags = {
  gcInterval: durationFlag("gc-interval", "1h", "how often the blocks of deleted nodes are collected", {
    min: "1s",
  }),
  nodeGoneGrace: durationFlag(
    "node-gone-grace",
    "60s",
    "the blocks of a node are collected when for this time neither its Node nor a pod bound to it was seen; at least the 30 s for which coild trusts what it knows of its blocks",
    { min: `${FRESH_MS / 1000}s` },
  ),
  blockAllocation: choiceFlag(
    "block-allocation",
    ["first-fit", "next-fit"],
    "first-fit",
    "which block of a pool is carved next: the free block of the lowest index, or the block after the one carved last",
  ),
};

/**
 * The collector runs this many milliseconds after a Node was deleted, and the grace period of the Node's blocks begins then. One pass
 * handles all Nodes that are deleted during this time.
 */
const NODE_GONE_DELAY_MS = 2000;
/** The interval at which the blocks of a pool that is being deleted are listed, in milliseconds. */
const DELETING_LOOK_MS = 30_000;
/** The collector's queue has this key and no other. */
const COLLECT = "orphans";

/** The longest time that a review waits for the first list of pools, in milliseconds; API servers wait 10 s by default. */
const POOLS_TIMEOUT_MS = 5_000;

/** The webhooks of AddressPools. */
export const POOL_WEBHOOKS: Webhooks = {
  part: "ipam",
  type: coilResources.addressPools,
  context: ({ watch }) => {
    const pools = watch(coilResources.addressPools, { name: "webhook-addresspools" });
    return async ({ signal }) => {
      await withDeadline(POOLS_TIMEOUT_MS, () => pools.synced, { signal });
      return { pools: pools.store.list() };
    };
  },
};

/** The parts of the leader of address management (docs/spec/pod-network.md#3). */
export function ipamLeader(values: FlagValues<typeof ipamFlags>): LeaderPart {
  return {
    lease: "coil-ipam-leader",
    setUp: (leading) => {
      const pools = new PoolManager(
        { api: leading.api, log: leading.log.child("pools"), clock: systemClock },
        { allocation: values.blockAllocation },
      );
      poolMetrics(leading.registry).observe(pools);
      const cluster = watchCluster(leading, pools);
      controlPools(leading, pools, cluster);
      controlRequests(leading, pools, cluster);
      controlOrphans(leading, cluster, values);
    },
  };
}

/** The caches of blocks and Nodes: the fields that are needed, since a cluster has tens of thousands. */
interface Cluster {
  readonly blocks: ReturnType<typeof watchBlocks>;
  readonly nodes: ReturnType<typeof watchNodes>;
}

function watchBlocks({ watch }: LeadingController) {
  return watch(coilResources.addressBlocks, {
    transform: ({ metadata: { name, uid, resourceVersion, labels }, index, ipv4, ipv6 }) => ({
      metadata: { name, uid, resourceVersion, ...(labels === undefined ? {} : { labels }) },
      index,
      ...(ipv4 === undefined ? {} : { ipv4 }),
      ...(ipv6 === undefined ? {} : { ipv6 }),
    }),
  });
}

function watchNodes({ watch }: LeadingController) {
  return watch(resources.nodes, {
    metadataOnly: true,
    transform: ({ metadata: { name, uid, resourceVersion } }) => ({ metadata: { name, uid, resourceVersion } }),
  });
}

/** The pools get all blocks before the first request is handled, and learn each deletion from then on. */
function watchCluster(leading: LeadingController, pools: PoolManager): Cluster {
  const blocks = watchBlocks(leading);
  blocks.addHandler({ onDelete: (block) => pools.noteBlockGone(block) });
  void blocks.synced.then(() => pools.adopt(blocks.store.values()));
  return { blocks, nodes: watchNodes(leading) };
}

function controlPools({ api, log, watch, control }: LeadingController, pools: PoolManager, { blocks }: Cluster): void {
  const addressPools = watch(coilResources.addressPools);
  const controller = control("addresspool", {
    of: addressPools,
    on: [addressPools],
    after: [blocks],
    // A pool whose writes get no answer keeps no other waiting.
    workers: 4,
    reconcile: async (name, { signal }) => {
      await reconcilePool({ api, pools, log: log.child("pools") }, name, { signal });
      const isDeleting = addressPools.store.get(name)?.metadata.deletionTimestamp !== undefined;
      // The deletion of its last block may have been missed while the watch was interrupted.
      return isDeleting ? { requeueAfterMs: DELETING_LOOK_MS } : undefined;
    },
  });
  blocks.addHandler({
    onDelete: ({ metadata: { labels } }) => {
      const pool = addressPools.store.get(labels?.[POOL_LABEL] ?? "");
      // Only a pool that is being deleted waits for the deletion of its last block.
      if (pool?.metadata.deletionTimestamp !== undefined) controller.enqueue(pool.metadata.name);
    },
  });
}

function controlRequests(
  { api, log, watch, control }: LeadingController,
  pools: PoolManager,
  { blocks, nodes }: Cluster,
): void {
  const requests = new BlockRequestReconciler({
    api,
    pools,
    hasNode: (name) => nodes.store.get(name) !== undefined,
    log: log.child("requests"),
    clock: systemClock,
  });
  const blockRequests = watch(coilResources.blockRequests);
  const controller = control("blockrequest", {
    of: blockRequests,
    after: [blocks],
    reconcile: (name, { signal }) => requests.reconcile(name, { signal }),
    // Requests of different pools are handled concurrently; the pool manager handles the requests of one pool in order.
    workers: 8,
    retry: { initialMs: 20, maxMs: 5000 },
  });
  const ifUnanswered = (request: BlockRequest): void => {
    if (blockRequestResult(request).state === "in-progress") controller.enqueue(request.metadata.name);
  };
  blockRequests.addHandler({
    onAdd: ifUnanswered,
    onUpdate: (_before, request) => ifUnanswered(request),
  });
}

function controlOrphans(
  { api, log, control }: LeadingController,
  { blocks, nodes }: Cluster,
  options: { readonly gcInterval: number; readonly nodeGoneGrace: number },
): void {
  const known = async (): Promise<KnownCluster> => ({
    blocks: blocks.store.values(),
    nodes: { has: (name) => nodes.store.get(name) !== undefined },
  });
  const orphans = new OrphanCollector(
    { api, known, log: log.child("orphans"), clock: systemClock },
    { graceMs: options.nodeGoneGrace },
  );
  const controller = control("orphans", {
    after: [blocks, nodes],
    reconcile: async (_key, { signal }) => {
      const { nextPassInMs } = await orphans.collect({ signal });
      return { requeueAfterMs: Math.min(nextPassInMs ?? options.gcInterval, options.gcInterval) };
    },
  });
  nodes.addHandler({
    onAdd: (node) => orphans.noteNode(node.metadata.name),
    onDelete: (node) => {
      orphans.noteNode(node.metadata.name);
      controller.enqueueAfter(COLLECT, NODE_GONE_DELAY_MS);
    },
  });
  controller.enqueue(COLLECT);
}
