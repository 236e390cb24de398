import { systemClock } from "#base/clock";
import { CniService, INSPECT_EGRESS_PATH, INSPECT_PATH, inspectHandler, reflectionConversations } from "#features/cni";
import type { EgressClients } from "#features/egress";
import { ChainedNetwork } from "#features/pod-network";
import { keepCniFiles } from "../../shared/cni-files/index.ts";
import { type Part, servedMarkPart } from "../../shared/daemon-kit/index.ts";
import { recordCalls } from "../../shared/pass-record/index.ts";
import { clientCalls } from "./client-calls.ts";
import { asFailure, findPod, tryAgain } from "./cni-deps.ts";
import type { CoildKit, Common } from "./common.ts";
import { inspectClients } from "./inspect.ts";
import { serveCalls } from "./serve-calls.ts";

/**
 * The parts of a coild behind another interface plugin (docs/spec/pod-network.md#5.3): it makes no links and has no addresses.
 * So it is ready as soon as it listens.
 */
export async function chainedParts(kit: CoildKit, common: Common): Promise<readonly Part[]> {
  const { values, environment: nodeName, health, log, use } = kit;
  const { kernel, namespaces, events } = common;
  const network = use(new ChainedNetwork(kernel));
  const clients = common.openClients(() => network.places());
  await serve(kit, common, network, clients);
  log.info("coild serves calls behind another plugin, without address management", {
    socket: values.socket,
    node: nodeName,
  });
  const files = { env: process.env, nodeName, events, health, log: log.child("cni-files"), clock: systemClock };
  const parts: readonly Part[] = [
    servedMarkPart({ socket: values.socket, health }),
    { name: "cni-files", run: (at) => keepCniFiles(files, at) },
  ];
  // Without clients there is no other work: the server only answers calls.
  if (clients === undefined) return parts;
  return [
    ...parts,
    { name: "clients", run: (at) => clients.run(at) },
    { name: "namespaces", run: (at) => namespaces.run(at) },
    { name: "events", run: (at) => events.run(at) },
  ];
}

async function serve(
  kit: CoildKit,
  { recording }: Pick<Common, "recording">,
  network: ChainedNetwork,
  clients: EgressClients | undefined,
): Promise<void> {
  const { values, environment: nodeName, api, health, metrics, log, onBug, use } = kit;
  const service = new CniService({
    nodeName,
    findPod: (namespace, name, at) => findPod(api, namespace, name, at),
    clients: clientCalls(clients),
    status: () => undefined,
    oneSandboxPerPod: false,
    log: log.child("cni"),
    clock: systemClock,
    chained: {
      adopt: ({ pod, netns, ifname }) => asFailure(async () => network.adopt({ netns, ifname, podUid: pod.uid })),
      ownerOf: (at) => asFailure(async () => network.ownerOf(at)),
      check: ({ pod, netns, ifname }, expected) =>
        asFailure(async () => network.check({ netns, ifname, podUid: pod.uid }, expected)),
    },
  });
  const server = await serveCalls({
    log,
    socketHealth: health.part("socket", { needed: "always" }),
    health: health.part("hand-over"),
    socketPath: values.socket,
    clock: systemClock,
    call: recordCalls(service.call, recording, tryAgain),
    handlers: {
      [INSPECT_PATH]: inspectHandler(() => ({ node: nodeName, chained: network.list() })),
      [INSPECT_EGRESS_PATH]: inspectHandler((at) => inspectClients(clients, nodeName, at)),
    },
    conversations: reflectionConversations,
    onProgress: metrics.onProgress,
    onHandled: metrics.onHandled,
    onBug,
  });
  use(server);
}
