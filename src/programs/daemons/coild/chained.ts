import { Dirty, TaskGroup, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import type { Health } from "#base/health";
import type { Logger } from "#base/log";
import { CniService, INSPECT_EGRESS_PATH, INSPECT_PATH, inspectHandler, reflectionConversations } from "#features/cni";
import { ChainedNetwork } from "#features/pod-network";
import type { FileLock } from "#kernel/lock";
import type { Kernel } from "#kernel/net";
import type { KubeApi, Namespace } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import type { Informer } from "#kube/informer";
import { keepCniFiles } from "../../shared/cni-files/index.ts";
import { type PassRecording, recordCalls } from "../../shared/pass-record/index.ts";
import { keepServedMark } from "../../shared/served-mark/index.ts";
import { clientCalls } from "./client-calls.ts";
import { asFailure, findPod, tryAgain } from "./cni-deps.ts";
import { inspectClients } from "./inspect.ts";
import type { coildMetrics } from "./metrics.ts";
import type { KnownNamespace } from "./namespaces.ts";
import type { OpenClients } from "./open-clients.ts";
import { serveCalls } from "./serve-calls.ts";

/**
 * A coild behind another interface plugin (docs/spec/pod-network.md#5.3), until the signal aborts: it makes no links and has no addresses.
 * So it is ready as soon as it listens.
 */
export async function runChained(
  parts: {
    readonly kernel: Kernel;
    readonly api: KubeApi;
    readonly namespaces: Informer<Namespace, KnownNamespace>;
    readonly events: EventRecorder;
    readonly health: Health;
    readonly metrics: ReturnType<typeof coildMetrics>;
    readonly lock: FileLock;
    readonly recording: PassRecording | undefined;
    readonly log: Logger;
  },
  options: { readonly nodeName: string; readonly socketPath: string; readonly signal: AbortSignal },
  openClients: OpenClients,
): Promise<void> {
  const { kernel, api, metrics, log } = parts;
  const { nodeName, socketPath } = options;
  const socketHealth = parts.health.part("socket", { needed: "always" });
  using network = new ChainedNetwork(kernel);
  const clients = openClients(() => network.places());
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
  const group = new TaskGroup(options.signal);
  await using _server = await serveCalls({
    log,
    socketHealth,
    health: parts.health.part("hand-over"),
    socketPath,
    clock: systemClock,
    call: recordCalls(service.call, parts.recording, tryAgain),
    handlers: {
      [INSPECT_PATH]: inspectHandler(() => ({ node: nodeName, chained: network.list() })),
      [INSPECT_EGRESS_PATH]: inspectHandler((at) => inspectClients(clients, nodeName, at)),
    },
    conversations: reflectionConversations,
    onProgress: metrics.onProgress,
    onHandled: metrics.onHandled,
    onBug: (error) =>
      group.spawn(async () => {
        throw error;
      }),
  });
  log.info("coild serves calls behind another plugin, without address management", {
    socket: socketPath,
    node: nodeName,
  });
  const mark = {
    socket: socketPath,
    canServe: () => true,
    dirty: new Dirty(),
    health: parts.health.part("served-mark"),
  };
  group.spawn((signal) => keepServedMark({ ...mark, clock: systemClock }, { signal }));
  const lockHealth = parts.health.part("lock", { needed: "always" });
  group.spawn((signal) => parts.lock.keep({ health: lockHealth, log, clock: systemClock }, { signal }));
  const { events, health } = parts;
  const files = { env: process.env, nodeName, events, health, log: log.child("cni-files"), clock: systemClock };
  group.spawn((signal) => keepCniFiles(files, { signal }));
  // Without clients there is no other work: the server only answers calls.
  group.spawn((signal) => untilAborted(signal));
  if (clients !== undefined) {
    group.spawn((signal) => clients.run({ signal }));
    group.spawn((signal) => parts.namespaces.run({ signal }));
    group.spawn((signal) => parts.events.run({ signal }));
  }
  await group.wait();
}
