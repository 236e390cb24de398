import { Backoff, retry } from "#base/async";
import { systemClock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import type { NodeIpam } from "#features/ipam";
import type { RouteSync } from "#features/routes";
import { findObject, isApiFailure, type KubeApi, resources } from "#kube/client";
import type { Part } from "../../shared/daemon-kit/index.ts";
import type { CoildKit } from "./common.ts";
import type { CoildNode } from "./node-state.ts";
import type { OwnNode } from "./own-node.ts";
import { watchOwnObjects } from "./watch-own-objects.ts";

/** Maximum time in which exported routes are withdrawn at shutdown, milliseconds (docs/spec/pod-network.md#4.8). */
const CLEAR_BUDGET_MS = 10_000;

/** The Node and its blocks: they are watched; once they are known, routes announce them and addresses are given. */
export function blockParts(kit: CoildKit, node: CoildNode): readonly Part[] {
  const { values, environment: nodeName, api, health, log, atEnd } = kit;
  const { ipam, ownNode, routes } = node;
  const watchHealth = health.part("watch");
  const ipamHealth = health.part("ipam");
  const exporting = exportPart(kit, node);
  if (values.clearRoutesOnShutdown) atEnd(() => clearRoutes(api, nodeName, routes, log));
  return [
    { name: "node", run: (at) => ownNode.run(at) },
    { name: "watch", run: (at) => watchOwnObjects({ api, ipam, ownNode, nodeName, health: watchHealth, log }, at) },
    {
      name: "blocks",
      run: async ({ signal }) => {
        await learnBlocks({ api, ipam, ownNode, nodeName, log, health: ipamHealth }, signal);
        // Its first sync is made at once, before an ADD that waits is answered.
        const exported = exporting.run({ signal });
        node.blocks.note();
        node.marks.served.mark("blocks learnt");
        node.marks.kernel.mark("blocks learnt");
        await Promise.all([exported, ipam.run({ signal, health: ipamHealth })]);
      },
    },
  ];
}

/** The routes that announce this node's blocks. */
function exportPart(
  { values, health, log }: Pick<CoildKit, "values" | "health" | "log">,
  { routes, exported, marks }: Pick<CoildNode, "routes" | "exported" | "marks">,
): Part {
  const part = health.part("routes", { needed: "always" });
  const sync = async (): Promise<number> => {
    const changes = routes.sync(exported());
    if (changes > 0) log.info("exported routes changed", { changes, table: values.exportTableId });
    return changes;
  };
  return {
    name: "routes",
    run: ({ signal }) => reconcile({ dirty: marks.routes, health: part, signal, resyncMs: values.gcInterval, sync }),
  };
}

/** Reads this node's addresses and blocks, and writes nothing. Waits for the API server without a limit; DEL and CHECK are served during the wait. */
async function learnBlocks(
  at: {
    readonly api: KubeApi;
    readonly ipam: NodeIpam;
    readonly ownNode: OwnNode;
    readonly nodeName: string;
    readonly log: Logger;
    readonly health: HealthPart;
  },
  signal: AbortSignal,
): Promise<void> {
  const learn = async (): Promise<void> => {
    const node = await at.api.get(resources.nodes, { name: at.nodeName }, { signal });
    at.ownNode.see(node);
    await at.ipam.learn({ signal });
    at.ipam.reportUnknown();
    at.health.ok();
  };
  await retry(learn, {
    signal,
    clock: systemClock,
    backoff: new Backoff({ initialMs: 200, maxMs: 1000 }),
    isPassing: (error) => error instanceof ExpectedError,
    onFailure: (error, retryInMs) => {
      at.health.degraded(error);
      at.log.warn("cannot read this node's blocks; trying again", { error: describeError(error), retryInMs });
    },
  });
}

/** Withdraws the exported routes if this Node was deleted. If coild ends for another reason, the routes stay. */
async function clearRoutes(api: KubeApi, nodeName: string, routes: RouteSync, log: Logger): Promise<void> {
  try {
    const node = await findObject(api, resources.nodes, { name: nodeName }, { timeoutMs: CLEAR_BUDGET_MS });
    if (node !== undefined) return;
    log.info("this node was deleted: exported routes withdrawn", { routes: routes.clear() });
  } catch (error) {
    if (!isApiFailure(error)) throw error;
    log.warn("cannot find out whether this node was deleted; the exported routes are kept", { error: error.message });
  }
}
