import { systemClock } from "#base/clock";
import { openKernel } from "#kernel/net";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { KEPT_FILES_NOTE, keepCniFiles } from "../../shared/cni-files/index.ts";
import { requireNodeName } from "../../shared/daemon/index.ts";
import { defineDaemon, type Part, servedMarkPart } from "../../shared/daemon-kit/index.ts";
import { blockParts } from "./block-parts.ts";
import { chainedParts } from "./chained.ts";
import { statusOf } from "./cni-deps.ts";
import { type CoildKit, type Common, type OpenedKernel, openCommon } from "./common.ts";
import { coildEstate, coildLock } from "./estate.ts";
import { coildFlags, faultsOf } from "./flags.ts";
import { collectForgotten } from "./forgotten/index.ts";
import { kernelParts } from "./kernel-parts.ts";
import { coildMetrics } from "./metrics.ts";
import { openNode, type ServingNode } from "./node-state.ts";
import { serveNode } from "./serve-node.ts";

/** `coild` (docs/spec/pod-network.md#4 and #5). */
export const coild = defineDaemon({
  name: "coild",
  summary: "Gives addresses and links to the pods of this node. Serves the calls of the CNI executable coil.",
  flags: coildFlags,
  notes: [`Environment: COIL_NODE_NAME, the name of this node (required). ${KEPT_FILES_NOTE}`, FOLLOWED_SERVERS_NOTE],
  metrics: coildMetrics,
  estate: coildEstate,
  environment: requireNodeName,
  faults: faultsOf,
  privileges: { task: "create the links of pods", needs: ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"] },
  // A second coild of this node waits until the first has ended: both would allocate the same addresses.
  lock: ({ socket }) => coildLock(socket),
  open: ({ use }) => {
    const kernel = openKernel();
    return { kernel, own: use(kernel.openNetNs("own")) };
  },
  parts: coildParts,
});

async function coildParts(kit: CoildKit, opened: OpenedKernel): Promise<readonly Part[]> {
  const common = await openCommon(kit, opened);
  return kit.values.enableIpam ? await nodeParts(kit, common) : await chainedParts(kit, common);
}

async function nodeParts(kit: CoildKit, common: Common): Promise<readonly Part[]> {
  const { values, health } = kit;
  const node = openNode(kit, common);
  const serving: ServingNode = { ...node, service: await serveNode(kit, node) };
  const { ipam, blocks, setUp, clients, namespaces, marks } = node;
  const canServe = (): boolean => statusOf(ipam, { isReady: blocks.isKnown, setUpFault: setUp.fault }) === undefined;
  return [
    servedMarkPart({ socket: values.socket, health, canServe, dirty: marks.served }),
    { name: "namespaces", run: (at) => namespaces.run(at) },
    ...(clients === undefined ? [] : [{ name: "clients", run: (at) => clients.run(at) } satisfies Part]),
    ...kernelParts(kit, node),
    ...podParts(kit, serving),
    ...blockParts(kit, node),
  ];
}

/** Reports about pods, attachments that the runtime has forgotten, and the files of the CNI installation. */
function podParts(kit: CoildKit, node: ServingNode): readonly Part[] {
  const { values, environment: nodeName, api, health, metrics, log } = kit;
  const { network, service, events, notes, blocks } = node;
  const { onCollected } = metrics;
  const collector = { network, service, api, events, onCollected, health: health.part("forgotten") };
  const { criSocket, attachmentGcGrace: graceMs } = values;
  const files = { env: process.env, nodeName, events, health, log: log.child("cni-files"), clock: systemClock };
  const eventsHealth = health.part("events");
  return [
    { name: "events", run: (at) => events.run(at) },
    {
      name: "forgotten",
      run: async ({ signal }) => {
        await blocks.wait({ signal });
        await collectForgotten(
          { ...collector, log: log.child("forgotten"), clock: systemClock },
          { nodeName, criSocket, graceMs, signal },
        );
      },
    },
    { name: "cni-files", run: (at) => keepCniFiles(files, at) },
    { name: "notes", run: (at) => notes.run({ api, events, nodeName, health: eventsHealth }, at) },
  ];
}
