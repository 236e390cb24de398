import { Dirty, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { durationFlag, integerFlag } from "#base/config";
import { Health, serveHealth, serveMetrics } from "#base/health";
import { Cidr } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { createRegistry } from "#base/metrics";
import { reconcile } from "#base/reconcile";
import { type RouterNode, RouteSync, routesToNodes } from "#features/routes";
import { openKernel } from "#kernel/net";
import { type Node, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL } from "#kube/coil";
import { allSynced, createInformer } from "#kube/informer";
import { coilRouterMetrics } from "./coil-router/metrics.ts";
import {
  endpointFlags,
  informerHealth,
  internalAddresses,
  kubeFlags,
  logFlags,
  loggerOf,
  openClient,
  requireNodeName,
} from "./daemon/index.ts";
import { restClientMetrics } from "./metrics/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "./program/index.ts";

const MAIN_TABLE = 254;
/** A log line names at most this many blocks. */
const MAX_NAMED = 10;

const flags = {
  ...endpointFlags(":9388", ":9389"),
  protocolId: integerFlag("protocol-id", 31, "protocol number that marks our routes; not that of coild", {
    min: 3,
    max: 255,
  }),
  updateInterval: durationFlag("update-interval", "10m", "sync at least this often", { min: "1s" }),
  ...kubeFlags,
  ...logFlags,
};

/** `coil-router` (docs/spec/pod-network.md#6). */
export const coilRouter = defineProgram({
  name: "coil-router",
  summary: "Writes routes to the other nodes' address blocks; for nodes that share one layer 2 network.",
  flags,
  notes: ["Environment: COIL_NODE_NAME, the name of this node (required)."],
  metrics: [coilRouterMetrics, restClientMetrics],
  run: async ({ values, signal }) => {
    const nodeName = requireNodeName();
    const log = loggerOf("coil-router", values);
    const registry = createRegistry();
    const health = new Health({ log: log.child("health") });
    requirePrivileges("write routes", ["CAP_NET_ADMIN"]);
    const kernel = openKernel();
    using own = kernel.openNetNs("own");
    using stack = kernel.openStack(own);
    await using api = await openClient("coil-router", values, { registry, clock: systemClock });
    await using _metrics = await serveMetrics({ registry }, { address: values.metricsAddr });
    await using _health = await serveHealth({ health }, { address: values.healthAddr });
    const metrics = coilRouterMetrics(registry);
    metrics.syncs.inc({ node: nodeName }, 0);

    const dirty = new Dirty();
    const blocks = createInformer(api, coilResources.addressBlocks, {
      onHealth: informerHealth(health, "addressblocks"),
      clock: systemClock,
    });
    const nodes = createInformer(api, resources.nodes, {
      onHealth: informerHealth(health, "nodes"),
      clock: systemClock,
    });
    const routesPart = health.part("routes", { needed: "always" });
    // A Node is written every few seconds, but its addresses hardly ever change.
    blocks.addHandler(markWhenOther(dirty, blockTarget));
    nodes.addHandler(markWhenOther(dirty, nodeTarget));
    const routes = new RouteSync(stack, { table: MAIN_TABLE, protocol: values.protocolId });
    const desired = (): ReturnType<typeof routesToNodes> => {
      const byNode = Map.groupBy(blocks.store.list(), (block) => block.metadata.labels?.[NODE_LABEL] ?? "");
      const others = nodes.store.list().filter((node) => node.metadata.name !== nodeName);
      const wanted = others.map((node): RouterNode => {
        const { name } = node.metadata;
        const prefixes = (byNode.get(name) ?? []).flatMap(({ ipv4, ipv6 }) => parsePrefixes([ipv4, ipv6]));
        return { name, ...internalAddresses(node), prefixes };
      });
      return routesToNodes(wanted, { table: MAIN_TABLE, protocol: values.protocolId });
    };
    const reportSkips = skipReporter(log);

    const group = new TaskGroup(signal);
    group.spawn((at) => blocks.run({ signal: at }));
    group.spawn((at) => nodes.run({ signal: at }));
    group.spawn(async (at) => {
      await allSynced([blocks, nodes], { signal: at });
      await reconcile({
        dirty,
        health: routesPart,
        signal: at,
        resyncMs: values.updateInterval,
        sync: async () => {
          const { routes: wanted, skipped } = desired();
          const changes = routes.sync(wanted);
          reportSkips(skipped);
          metrics.skipped.set({ node: nodeName }, skipped.length);
          metrics.syncs.inc({ node: nodeName });
          metrics.routes.set({ node: nodeName }, wanted.length);
          if (changes > 0) log.info("routes changed", { changes, routes: wanted.length });
          return changes;
        },
      });
    });
    log.info("started", { node: nodeName });
    await group.wait();
    return EXIT.ok;
  },
});

/** Parses prefixes. Leaves out a malformed prefix, which a person may have written: it gets no route. */
function parsePrefixes(texts: readonly (string | undefined)[]): Cidr[] {
  return texts.flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? [])));
}

/** The fields of a block that decide about routes. */
function blockTarget({ metadata, ipv4, ipv6 }: AddressBlock): string {
  return [metadata.labels?.[NODE_LABEL], ipv4, ipv6].join(" ");
}

/** The addresses of a Node, which decide about routes. */
function nodeTarget(node: Node): string {
  const { ipv4, ipv6 } = internalAddresses(node);
  return [ipv4, ipv6].join(" ");
}

/** Returns a handler that marks `dirty` when an object is added or deleted, or when the result of `target` changes. */
function markWhenOther<T>(dirty: Dirty, target: (object: T) => string) {
  return {
    onAdd: (): void => dirty.mark(),
    onUpdate: (before: T, after: T): void => {
      if (target(before) !== target(after)) dirty.mark();
    },
    onDelete: (): void => dirty.mark(),
  };
}

/** Logs which prefixes cannot be routed, and logs again when the set changes. A line names some of them; the metric counts all. */
function skipReporter(log: Logger): (skipped: ReturnType<typeof routesToNodes>["skipped"]) => void {
  const repeats = new Repeats();
  return (skipped) => {
    // Blocks are in the order of the API server's list, and that order can change.
    const texts = skipped.map(({ node, prefix }) => `${prefix} of ${node}`).sort();
    if (!repeats.isNew("skipped", texts.join(", "))) return;
    if (texts.length === 0) return;
    log.warn("blocks are not routed: their nodes have no address of the family", {
      count: texts.length,
      blocks: texts.slice(0, MAX_NAMED),
    });
  };
}
