import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { addressFlag, choiceFlag, durationFlag } from "#base/config";
import { Health, serveHealth, serveMetrics } from "#base/health";
import { type Logger, Repeats } from "#base/log";
import { createRegistry, Gauge, type Registry } from "#base/metrics";
import { BlockRequestReconciler, OrphanCollector, PoolManager, reconcilePool } from "#features/ipam";
import { type KubeApi, type KubeObject, type ResourceType, resources } from "#kube/client";
import { blockRequestResult, coilResources, POOL_LABEL } from "#kube/coil";
import { createInformer, type Informer } from "#kube/informer";
import { runAsLeader } from "#kube/lease";
import { Controller } from "#kube/reconciler";
import { controllerMetrics, electionIdentity, kubeFlags, logFlags, loggerOf, openClient } from "./daemon-flags.ts";
import { informerHealth } from "./informer-health.ts";
import { defineProgram, EXIT } from "./run-program.ts";

const flags = {
  metricsAddr: addressFlag("metrics-addr", ":9386", "address of /metrics"),
  healthAddr: addressFlag("health-addr", ":9387", "address of /healthz and /readyz"),
  gcInterval: durationFlag("gc-interval", "1h", "how often blocks of nodes that are gone are collected", {
    min: "1s",
  }),
  nodeGoneGrace: durationFlag(
    "node-gone-grace",
    "60s",
    "how long neither a Node nor a pod bound to it must have been seen before its blocks are collected",
  ),
  blockAllocation: choiceFlag(
    "block-allocation",
    ["first-fit", "next-fit"],
    "first-fit",
    "which block of a pool is next: the lowest free one, or the one after the last",
  ),
  ...kubeFlags,
  ...logFlags,
};

/** After a Node is deleted the grace of its blocks begins this soon, milliseconds; deletions meanwhile are one pass. */
const NODE_GONE_DELAY_MS = 2000;
/** The one key of the collector's queue. */
const COLLECT = "orphans";

/** `coil-ipam-controller` (docs/spec/pod-network.md#3). */
export const coilIpamController = defineProgram({
  name: "coil-ipam-controller",
  summary: "Carves address blocks out of AddressPools and allots them to the nodes that ask.",
  flags,
  notes: ["Run two: one leads (Lease kube-system/coil-ipam-leader), the other waits."],
  run: async ({ values, signal }) => {
    const log = loggerOf("coil-ipam-controller", values);
    const registry = createRegistry();
    const health = new Health({ log: log.child("health") });
    await using api = await openClient("coil-ipam-controller", values, { registry });
    await using _metrics = await serveMetrics({ registry }, { address: values.metricsAddr });
    await using _health = await serveHealth({ health }, { address: values.healthAddr });
    const election = health.part("leader-election");
    const identity = electionIdentity();
    const isLeader = leaderGauge(registry);
    const repeats = new Repeats();
    log.info("started");
    const end = await runAsLeader(
      api,
      {
        namespace: "kube-system",
        name: "coil-ipam-leader",
        identity,
        onNewLeader: (leader) => {
          log.info("leader seen", { identity: leader });
          // A replica that waits is ready: it serves its probes and takes over when asked.
          election.ok(leader === identity ? "leading" : `waiting: ${leader} leads`);
        },
        onError: (error) => {
          election.degraded(error);
          if (repeats.isNews("election", error.message)) {
            log.warn("leader election failed, trying again", { error: error.message });
          }
        },
      },
      {
        signal,
        lead: async (leading) => {
          isLeader.set({ name: "coil-ipam-leader" }, 1);
          election.ok("leading");
          await lead({ api, log, registry, health }, values, leading);
        },
        onStopped: () => isLeader.set({ name: "coil-ipam-leader" }, 0),
      },
    );
    if (end !== "lost") return EXIT.ok;
    log.error("lost the lease; ending so that nothing is done on old knowledge");
    return EXIT.failed;
  },
});

interface Parts {
  readonly api: KubeApi;
  readonly log: Logger;
  readonly registry: Registry;
  readonly health: Health;
}

async function lead(
  { api, log, registry, health }: Parts,
  options: {
    readonly gcInterval: number;
    readonly nodeGoneGrace: number;
    readonly blockAllocation: "first-fit" | "next-fit";
  },
  leading: AbortSignal,
): Promise<void> {
  const pools = new PoolManager({ api, log: log.child("pools") }, { allocation: options.blockAllocation });
  poolGauges(registry, pools);
  const watch = <T extends KubeObject>(type: ResourceType<T>): Informer<T, T> =>
    createInformer(api, type, { onHealth: informerHealth(health, type.plural) });
  const poolInformer = watch(coilResources.addressPools);
  const blockInformer = watch(coilResources.addressBlocks);
  const requestInformer = watch(coilResources.blockRequests);
  const nodeInformer = watch(resources.nodes);
  const metrics = controllerMetrics(registry);

  const poolController = new Controller({
    name: "addresspool",
    reconcile: (name, { signal }) => reconcilePool({ api, pools, log: log.child("pools") }, name, { signal }),
    log: log.child("addresspool"),
    ...metrics("addresspool"),
  });
  const requests = new BlockRequestReconciler({ api, pools, clock: systemClock, log: log.child("requests") });
  const requestController = new Controller({
    name: "blockrequest",
    reconcile: (name, { signal }) => requests.reconcile(name, { signal }),
    // Requests of different pools go side by side; the pool manager orders those of one.
    workers: 8,
    retry: { initialMs: 20, maxMs: 5000 },
    log: log.child("blockrequest"),
    ...metrics("blockrequest"),
  });
  const orphans = new OrphanCollector({ api, log: log.child("orphans") }, { graceMs: options.nodeGoneGrace });
  const collector = new Controller({
    name: "orphans",
    reconcile: async (_key, { signal }) => {
      const { againInMs } = await orphans.collect({ signal });
      return { requeueAfterMs: Math.min(againInMs ?? options.gcInterval, options.gcInterval) };
    },
    log: log.child("orphans"),
    ...metrics("orphans"),
  });

  poolInformer.addHandler({
    onAdd: (pool) => poolController.enqueue(pool.metadata.name),
    onUpdate: (_before, pool) => poolController.enqueue(pool.metadata.name),
    onDelete: (pool) => poolController.enqueue(pool.metadata.name),
  });
  blockInformer.addHandler({
    onDelete: (block) => poolController.enqueue(block.metadata.labels?.[POOL_LABEL] ?? ""),
  });
  const ifUnanswered = (
    request: Parameters<typeof blockRequestResult>[0] & { readonly metadata: { readonly name: string } },
  ): void => {
    if (blockRequestResult(request).state === "in-progress") requestController.enqueue(request.metadata.name);
  };
  requestInformer.addHandler({ onAdd: ifUnanswered, onUpdate: (_before, request) => ifUnanswered(request) });
  nodeInformer.addHandler({
    onAdd: (node) => orphans.noteNode(node.metadata.name),
    onDelete: (node) => {
      orphans.noteNode(node.metadata.name);
      collector.enqueueAfter(COLLECT, NODE_GONE_DELAY_MS);
    },
  });
  collector.enqueue(COLLECT);

  const group = new TaskGroup(leading);
  for (const informer of [poolInformer, blockInformer, requestInformer, nodeInformer]) {
    group.spawn((signal) => informer.run({ signal }));
  }
  for (const controller of [poolController, requestController, collector]) {
    group.spawn((signal) => controller.run({ signal }));
  }
  await group.wait();
}

/** `coil_controller_max_blocks` and `coil_controller_allocated_blocks`: series appear and vanish with their pools. */
function poolGauges(registry: Registry, pools: PoolManager): void {
  const gauge = (name: string, help: string, value: (stats: PoolManager["stats"][number]) => number): Gauge =>
    new Gauge({
      name,
      help,
      labelNames: ["pool"],
      registers: [registry],
      collect() {
        this.reset();
        for (const stats of pools.stats) this.set({ pool: stats.pool }, value(stats));
      },
    });
  gauge("coil_controller_max_blocks", "The maximum number of address blocks of a pool.", (stats) => stats.maxBlocks);
  gauge(
    "coil_controller_allocated_blocks",
    "The number of allocated address blocks.",
    (stats) => stats.allocatedBlocks,
  );
}

function leaderGauge(registry: Registry): Gauge {
  const gauge = new Gauge({
    name: "leader_election_master_status",
    help: "1 while this process holds the lease.",
    labelNames: ["name"],
    registers: [registry],
  });
  gauge.set({ name: "coil-ipam-leader" }, 0);
  return gauge;
}
