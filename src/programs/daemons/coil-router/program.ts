import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import { durationFlag, type FlagValues, integerFlag } from "#base/config";
import { Cidr } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { reconcile } from "#base/reconcile";
import { NodeRoutes, type RouterNode, type RouterSkip } from "#features/routes";
import { type NetNs, type NetStack, openKernel } from "#kernel/net";
import { type Node, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL } from "#kube/coil";
import { createInformer } from "#kube/informer";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import {
  coilLogFlags,
  endpointFlags,
  informerHealth,
  internalAddresses,
  kubeFlags,
  requireNodeName,
} from "../../shared/daemon/index.ts";
import { type DaemonKit, defineDaemon, type Part } from "../../shared/daemon-kit/index.ts";
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
export const coilRouter = defineDaemon({
  name: "coil-router",
  summary: "Writes routes to the other nodes' address blocks; for nodes that share one layer 2 network.",
  flags,
  notes: ["Environment: COIL_NODE_NAME, the name of this node (required).", FOLLOWED_SERVERS_NOTE],
  metrics: coilRouterMetrics,
  estate: coilRouterEstate,
  environment: requireNodeName,
  privileges: { task: "write routes", needs: ["CAP_NET_ADMIN"] },
  open: ({ use }) => {
    const kernel = openKernel();
    const netns = use(kernel.openNetNs("own"));
    return { netns, stack: use(kernel.openStack(netns)) };
  },
  parts: coilRouterParts,
});

type Kit = DaemonKit<FlagValues<typeof flags>, string, ReturnType<typeof coilRouterMetrics>>;

function coilRouterParts(
  kit: Kit,
  { netns, stack }: { readonly netns: NetNs; readonly stack: NetStack },
): readonly Part[] {
  const { values, environment: nodeName, health, metrics, log } = kit;
  metrics.syncs.inc({ node: nodeName }, 0);
  const known = watchCluster(kit);
  const { dirty } = known;
  const routesHealth = health.part("routes", { needed: "always" });
  const place = { table: MAIN_TABLE, protocol: values.protocolId };
  const wholeEveryMs = Math.min(WHOLE_MS, values.updateInterval);
  const routes = new NodeRoutes({ stack, clock: systemClock }, { ...place, wholeEveryMs });
  const reportSkips = skipReporter(log);
  const sync = async (): Promise<number> => {
    const { changes } = routes.sync({ all: known.all, get: known.get, changed: known.takeChanged() });
    const { skipped } = routes;
    reportSkips(skipped);
    metrics.skipped.set({ node: nodeName }, skipped.length);
    metrics.syncs.inc({ node: nodeName });
    metrics.routes.set({ node: nodeName }, routes.size);
    if (changes > 0) log.info("routes changed", { changes, routes: routes.size });
    return changes;
  };
  log.info("started", { node: nodeName });
  return [
    { name: "kernel", run: (at) => watchRoutes({ netns, routes, place, dirty, clock: systemClock, log }, at) },
    { name: "addressblocks", run: (at) => known.inputs.blocks.run(at) },
    { name: "nodes", run: (at) => known.inputs.nodes.run(at) },
    {
      name: "routes",
      run: ({ signal }) =>
        reconcile({ dirty, inputs: known.inputs, health: routesHealth, signal, resyncMs: values.updateInterval, sync }),
    },
  ];
}

/** The blocks and Nodes of the cluster, and the names of nodes whose routes may have changed. */
function watchCluster({ api, environment: nodeName, health }: Pick<Kit, "api" | "environment" | "health">) {
  const dirty = new Dirty();
  const changed = new Set<string>();
  const mark = (node: string): void => {
    changed.add(node);
    dirty.mark("block or node");
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
  const get = (name: string): RouterNode | undefined => {
    if (name === nodeName || name === "") return undefined;
    const prefixes = blocks.store.byIndex("node", name).flatMap((block) => block.prefixes);
    // A block counts as long as it is there, also without its Node: the machine of a Node that was deleted may run, and its pods too.
    const node = nodes.store.get(name);
    return prefixes.length === 0 ? undefined : { name, ipv4: node?.ipv4, ipv6: node?.ipv6, prefixes };
  };
  const all = (): RouterNode[] => blocks.store.indexValues("node").flatMap((name) => get(name) ?? []);
  const takeChanged = (): readonly string[] => {
    const now = [...changed];
    changed.clear();
    return now;
  };
  return { dirty, inputs: { blocks, nodes }, get, all, takeChanged };
}

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
