import { writeFileSync } from "node:fs";
import { sleep, TaskGroup } from "#base/async";
import { describeError } from "#base/errors";
import { createLogger, type Logger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { DataPlane, DriftWatch, Ledger, type SyncObserver } from "#features/service-proxy";
import { openConntrack } from "#kernel/conntrack";
import { isKernelError } from "#kernel/errors";
import { Monitors } from "#kernel/monitor";
import { type NetNs, openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { findObject, type KubeApi, KubeError, type Node, resources } from "#kube/client";
import { openClient } from "./daemon-flags.ts";
import { requirePrivileges } from "./privileges.ts";
import { defineProgram, EXIT } from "./run-program.ts";
import { type ServiceProxyConfig, serviceProxyConfig, writeConfig } from "./service-proxy/config.ts";
import { Family, type KernelParts, supportedFamilies } from "./service-proxy/families.ts";
import { serviceProxyFlags } from "./service-proxy/flags.ts";
import { watchInputs } from "./service-proxy/inputs.ts";
import { setKernelParameters, setOomScore } from "./service-proxy/kernel-parameters.ts";
import { type NodeState, nodeState } from "./service-proxy/node-state.ts";

/** How long the Node may take to have addresses, milliseconds (spec service-proxy 2.10). */
const NODE_ADDRESSES_MS = 30_000;
const NODE_POLL_MS = 1000;

/** `service-proxy` (spec service-proxy). */
export const serviceProxy = defineProgram({
  name: "service-proxy",
  summary: "Services on nftables, in kube-proxy's place: its flags, configuration file, ports and metrics.",
  flags: serviceProxyFlags,
  notes: [
    "Rules stay when it ends: connections go on, and the next start takes them over. --cleanup removes them.",
    "With --config flags other than those for logging and the node's name are not heeded, as with kube-proxy.",
  ],
  run: async ({ values, signal }) => {
    if (values.writeConfigTo !== undefined) {
      writeFileSync(values.writeConfigTo, writeConfig(values));
      return EXIT.ok;
    }
    const config = serviceProxyConfig(values);
    const log = createLogger({
      name: "service-proxy",
      level: (values.verbosity ?? 0) >= 2 ? "debug" : "info",
      encoder: values.loggingFormat === "json" ? "json" : "console",
    });
    for (const note of config.notes) log.warn(note);
    requirePrivileges("program nftables", ["CAP_NET_ADMIN"]);
    const kernel = openKernel();
    using netns = kernel.openNetNs(values.netns === undefined ? "own" : { path: values.netns });
    using stack = kernel.openStack(netns);
    setKernelParameters(stack.sysctl, config.conntrack, { log });
    if (values.initOnly) return EXIT.ok;
    using nft = openNft(netns);
    using elements = openNftElements(netns);
    const ledger = new Ledger(elements);
    if (values.cleanup) return await cleanUp({ nft, elements, ledger }, config);
    setOomScore(config.oomScoreAdj, log);
    using conntrack = openFlows(netns, log);
    const parts: KernelParts = { stack, nft, elements, conntrack, ledger };
    await using monitors = new Monitors({
      onFailure: (error) => log.error("addresses are not followed any more", { error: error.message }),
    });
    const registry = createRegistry();
    await using api = await openClient("service-proxy", { kubeconfig: config.kubeconfig }, { registry });
    await serve({ config, parts, api, monitors, netns, log }, signal);
    return EXIT.ok;
  },
});

interface ServeParts {
  readonly config: ServiceProxyConfig;
  readonly parts: KernelParts;
  readonly api: KubeApi;
  readonly monitors: Monitors;
  readonly netns: NetNs;
  readonly log: Logger;
}

async function serve({ config, parts, api, monitors, netns, log }: ServeParts, signal: AbortSignal): Promise<void> {
  let node = await awaitNode(api, config, log, signal);
  const observer: SyncObserver = {
    synced: (family, report) => log.debug("synced", { family, ...report }),
  };
  const families = supportedFamilies(parts.stack).map(
    (family) => new Family(family, config, parts, { node, observer, log }),
  );
  const proxies = families.map(({ proxy }) => proxy);
  const drift = new DriftWatch({ ledger: parts.ledger, families: proxies, log });
  const onNode = (object: Node | undefined): void => {
    // A Node that was deleted keeps what was known of it: it is still here, and serves until it is ended.
    if (object === undefined) return;
    node = nodeState(object, config.bindAddress);
    for (const family of families) family.setNode(node);
  };
  await using _addresses = monitors.watch(netns, { addresses: true }, () => {
    for (const family of families) family.setHostAddresses(node);
  });
  const group = new TaskGroup(signal);
  for (const proxy of proxies) group.spawn((at) => proxy.run({ signal: at }));
  group.spawn((at) => drift.run({ signal: at }));
  group.spawn((at) =>
    watchInputs(
      api,
      {
        families: proxies,
        onNode,
        onListed: () => {
          for (const proxy of proxies) proxy.open();
        },
        onWatch: (resource, health) => {
          if (health.state === "degraded")
            log.warn("watch failed; trying again", { resource, error: health.error.message });
        },
        allowExternalIPs: config.gates.allowServiceExternalIPs,
        log,
      },
      { nodeName: config.nodeName, signal: at },
    ),
  );
  log.info("started", { node: config.nodeName, families: families.map(({ family }) => family) });
  await group.wait();
}

/** Waits for the Node's addresses, not for ever: without them NodePorts and the load balancers' own sources are all that lacks. */
async function awaitNode(
  api: KubeApi,
  config: ServiceProxyConfig,
  log: Logger,
  signal: AbortSignal,
): Promise<NodeState> {
  const until = performance.now() + NODE_ADDRESSES_MS;
  for (;;) {
    const state = await readNode(api, config, signal);
    if (state.addresses.length > 0) return state;
    if (performance.now() > until) {
      log.warn("the Node has no addresses; going on without", { node: config.nodeName });
      return state;
    }
    await sleep(NODE_POLL_MS, { signal });
  }
}

async function readNode(api: KubeApi, config: ServiceProxyConfig, signal: AbortSignal): Promise<NodeState> {
  const none: NodeState = {
    addresses: config.bindAddress === undefined ? [] : [config.bindAddress],
    zone: undefined,
    podCIDRs: [],
  };
  try {
    const node = await findObject(api, resources.nodes, { name: config.nodeName }, { signal });
    return node === undefined ? none : nodeState(node, config.bindAddress);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof KubeError)) throw error;
    return none;
  }
}

/** Both families' tables, and nothing else. */
async function cleanUp(
  parts: Pick<KernelParts, "nft" | "elements" | "ledger">,
  config: ServiceProxyConfig,
): Promise<number> {
  const options = { mark: config.mark, masqueradeAll: false, detector: undefined, nodePortAddresses: "set" } as const;
  for (const family of [4, 6] as const) {
    const plane = new DataPlane(parts, { ...options, family, tableName: config.tableName });
    const removed = await plane.remove();
    const name = `${family === 4 ? "ip" : "ip6"} ${config.tableName}`;
    process.stdout.write(removed ? `removed table ${name}\n` : `there is no table ${name}\n`);
  }
  return EXIT.ok;
}

/** `undefined` where this kernel has no connection tracking that can be read: UDP flows are then left alone. */
function openFlows(netns: NetNs, log: Logger): ReturnType<typeof openConntrack> | undefined {
  try {
    return openConntrack(netns);
  } catch (error) {
    if (!isKernelError(error)) throw error;
    log.warn("connection tracking cannot be read: stale UDP flows are left alone", { error: describeError(error) });
    return undefined;
  }
}
