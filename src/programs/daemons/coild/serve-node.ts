import { systemClock } from "#base/clock";
import { CniService, INSPECT_EGRESS_PATH, INSPECT_PATH, inspectHandler, reflectionConversations } from "#features/cni";
import { servedLately } from "../../shared/cni-plugin/index.ts";
import { recordCalls } from "../../shared/pass-record/index.ts";
import { clientCalls } from "./client-calls.ts";
import { cniDeps, tryAgain } from "./cni-deps.ts";
import type { CoildKit } from "./common.ts";
import { inspectClients, inspectThisNode } from "./inspect.ts";
import type { CoildNode } from "./node-state.ts";
import { serveCalls } from "./serve-calls.ts";

/** Serves the calls of the CNI executable until the daemon ends. Returns the service. */
export async function serveNode(kit: CoildKit, node: CoildNode): Promise<CniService> {
  const { values, environment: nodeName, health, metrics, log, onBug, use } = kit;
  const { network, ipam, routes, clients, recording } = node;
  const service = serviceOf(kit, node);
  metrics.observe(ipam);
  const server = await serveCalls({
    log,
    socketHealth: health.part("socket", { needed: "always" }),
    health: health.part("hand-over"),
    socketPath: values.socket,
    clock: systemClock,
    call: recordCalls(service.call, recording, tryAgain),
    handlers: {
      [INSPECT_PATH]: inspectHandler(() =>
        inspectThisNode({ nodeName, ipam, network, exported: routes.list().map((route) => route.dst) }),
      ),
      [INSPECT_EGRESS_PATH]: inspectHandler((at) => inspectClients(clients, nodeName, at)),
    },
    conversations: reflectionConversations,
    onProgress: metrics.onProgress,
    onHandled: metrics.onHandled,
    onBug,
  });
  use(server);
  log.info("serving", { socket: values.socket, node: nodeName });
  return service;
}

function serviceOf({ values, environment: nodeName, api, log }: CoildKit, node: CoildNode): CniService {
  const { ipam, network, namespaces, clients, ownNode, blocks, setUp, extraSources, notes } = node;
  return new CniService(
    cniDeps({
      nodeName,
      api,
      ipam,
      network,
      namespaces: namespaces.store,
      clients: clientCalls(clients),
      ready: blocks.promise,
      ownNode,
      isReady: () => blocks.isKnown || servedLately(values.socket, systemClock.now()),
      setUpFault: () => setUp.fault,
      oneSandboxPerPod: values.compatCalico,
      extraSources,
      notes,
      log: log.child("cni"),
      clock: systemClock,
    }),
  );
}
