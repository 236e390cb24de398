import { Dirty, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { durationFlag, integerFlag } from "#base/config";
import { Health } from "#base/health";
import { Cidr } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { createRegistry } from "#base/metrics";
import { reconcile } from "#base/reconcile";
import { NodeRoutes, type RouterNode, type RouterSkip } from "#features/routes";
import { openKernel } from "#kernel/net";
import { type Node, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL } from "#kube/coil";
import { createInformer } from "#kube/informer";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import {
  coilLogFlags,
  endpointFlags,
  followServers,
  informerHealth,
  internalAddresses,
  kubeFlags,
  loggerOf,
  openClient,
  requireNodeName,
} from "../../shared/daemon/index.ts";
import { leaveEstate } from "../../shared/estate/index.ts";
import { serveHealth, serveMetrics } from "../../shared/http-endpoints/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { sayOpenFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "../../shared/program/index.ts";
import { coilRouterEstate } from "./estate.ts";
import { coilRouterMetrics } from "./metrics.ts";
import { watchRoutes } from "./watch-routes.ts";

const MAIN_TABLE = 254;
/**
 * After this time the next change causes a sync of all routes, in milliseconds, because other programs may have changed the kernel's
 * routes.
 */
const WHOLE_MS = 30_000;
/** A log line names at most this many blocks. */
const MAX_NAMED = 10;

const flags = {
  ...endpointFlags(":9388", ":9389"),
  protocolId: integerFlag("protocol-id", 31, "protocol number that marks our routes; it must differ from coild's", {
    min: 3,
    max: 255,
  }),
  updateInterval: durationFlag("update-interval", "10m", "maximum time between two syncs", { min: "1s" }),
  ...kubeFlags,
  ...coilLogFlags,
};

/** `coil-router` (docs/spec/pod-network.md#6). */
export const coilRouter = defineProgram({
  name: "coil-router",
  summary: "Writes routes to the other nodes' address blocks; for nodes that share one layer 2 network.",
  flags,
  notes: ["Environment: COIL_NODE_NAME, the name of this node (required).", FOLLOWED_SERVERS_NOTE],
  metrics: [coilRouterMetrics, restClientMetrics],
  estate: coilRouterEstate,
  run: async ({ values, signal }) => {
    const nodeName = requireNodeName();
    const log = loggerOf("coil-router", values);
    const registry = createRegistry();
    const health = new Health({ log: log.child("health") });
    requirePrivileges("write routes", ["CAP_NET_ADMIN"]);
    sayOpenFiles(log);
    const kernel = openKernel();
    using own = kernel.openNetNs("own");
    using stack = kernel.openStack(own);
    leaveEstate("coil-router", coilRouterEstate(values), { log });
    await using api = await openClient("coil-router", values, { registry, clock: systemClock });
    await using _servers = followServers("coil-router", [api], { log });
    await using _metrics = await serveMetrics({ registry, log, api }, values);
    await using _health = await serveHealth({ health, log }, { address: values.healthAddr });
    const metrics = coilRouterMetrics(registry);
    metrics.syncs.inc({ node: nodeName }, 0);

    const dirty = new Dirty();
    const changed = new Set<string>();
    const mark = (node: string): void => {
      changed.add(node);
      dirty.mark();
    };
    const blocks = createInformer(api, coilResources.addressBlocks, {
      transform: routerBlock,
      indexers: { node: ({ node }) => [node] },
      onHealth: informerHealth(health, "addressblocks"),
      clock: systemClock,
    });
    const nodes = createInformer(api, resources.nodes, {
      transform: routerNode,
      onHealth: informerHealth(health, "nodes"),
      clock: systemClock,
    });
    const routesPart = health.part("routes", { needed: "always" });
    blocks.addHandler({
      onAdd: ({ node }) => mark(node),
      onUpdate: (before, after) => {
        if (before.node === after.node && before.prefixes.join() === after.prefixes.join()) return;
        mark(before.node);
        mark(after.node);
      },
      onDelete: ({ node }) => mark(node),
    });
    nodes.addHandler({
      onAdd: ({ metadata }) => mark(metadata.name),
      // A Node is written every few minutes, but its addresses hardly ever change.
      onUpdate: (before, after) => {
        if (wayTo(before) !== wayTo(after)) mark(after.metadata.name);
      },
      onDelete: ({ metadata }) => mark(metadata.name),
    });
    const place = { table: MAIN_TABLE, protocol: values.protocolId };
    const routes = new NodeRoutes(
      { stack, clock: systemClock },
      { ...place, wholeEveryMs: Math.min(WHOLE_MS, values.updateInterval) },
    );
    const get = (name: string): RouterNode | undefined => {
      if (name === nodeName || name === "") return undefined;
      const prefixes = blocks.store.byIndex("node", name).flatMap((block) => block.prefixes);
      // A block counts as long as it is there, also without its Node: the machine of a Node that was deleted may run, and its pods too.
      const node = nodes.store.get(name);
      return prefixes.length === 0 ? undefined : { name, ipv4: node?.ipv4, ipv6: node?.ipv6, prefixes };
    };
    const all = (): RouterNode[] => blocks.store.indexValues("node").flatMap((name) => get(name) ?? []);
    const reportSkips = skipReporter(log);

    const group = new TaskGroup(signal);
    group.spawn((at) => watchRoutes({ netns: own, routes, place, dirty, clock: systemClock, log }, { signal: at }));
    group.spawn((at) => blocks.run({ signal: at }));
    group.spawn((at) => nodes.run({ signal: at }));
    group.spawn((at) =>
      reconcile({
        dirty,
        inputs: { blocks, nodes },
        health: routesPart,
        signal: at,
        resyncMs: values.updateInterval,
        sync: async () => {
          const now = [...changed];
          changed.clear();
          const { changes } = routes.sync({ all, get, changed: now });
          const { skipped } = routes;
          reportSkips(skipped);
          metrics.skipped.set({ node: nodeName }, skipped.length);
          metrics.syncs.inc({ node: nodeName });
          metrics.routes.set({ node: nodeName }, routes.size);
          if (changes > 0) log.info("routes changed", { changes, routes: routes.size });
          return changes;
        },
      }),
    );
    log.info("started", { node: nodeName });
    await group.wait();
    return EXIT.ok;
  },
});

/** The fields of a block on which routes depend. */
function routerBlock({ metadata: { name, uid, resourceVersion, labels }, ipv4, ipv6 }: AddressBlock) {
  return {
    metadata: { name, uid, resourceVersion },
    node: labels?.[NODE_LABEL] ?? "",
    // A malformed prefix, which a person may have written, gets no route.
    prefixes: [ipv4, ipv6].flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? []))),
  };
}

/** The fields of a Node on which routes depend; a whole Node has 10 KiB, mostly names of images. */
function routerNode(node: Node) {
  const { name, uid, resourceVersion } = node.metadata;
  return { metadata: { name, uid, resourceVersion }, ...internalAddresses(node) };
}

function wayTo({ ipv4, ipv6 }: Pick<RouterNode, "ipv4" | "ipv6">): string {
  return [ipv4, ipv6].join(" ");
}

/** Logs which prefixes cannot be routed, and logs again when the set changes. A line names some of them; the metric counts all. */
function skipReporter(log: Logger): (skipped: readonly RouterSkip[]) => void {
  const repeats = new Repeats();
  return (skipped) => {
    // Blocks are in the order of the API server's list, and that order can change.
    const texts = skipped.map(({ node, prefix }) => `${prefix} of node ${node}`).sort();
    if (!repeats.isNew("skipped", texts.join(", "))) return;
    if (texts.length === 0) return;
    log.warn(
      "blocks are not routed: their nodes are not in the cluster or have no address of the family, and no way to them is known",
      {
        count: texts.length,
        blocks: texts.slice(0, MAX_NAMED),
      },
    );
  };
}
