import { type AbortOptions, Backoff, Deferred, Dirty, retry, TaskGroup, unlessAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { ConfigError, choiceFlag, durationFlag, integerFlag, repeatedFlag, stringFlag, switchFlag } from "#base/config";
import { describeError, ExpectedError } from "#base/errors";
import { Health, type HealthPart } from "#base/health";
import { Cidr } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { createRegistry } from "#base/metrics";
import { reconcile } from "#base/reconcile";
import { CniService, INSPECT_EGRESS_PATH, INSPECT_PATH, inspectHandler, reflectionConversations } from "#features/cni";
import { FILTER_BACKENDS, filterOpeners, loadDriverModules, PRIVATE_RANGES, TUNNEL_DRIVERS } from "#features/egress";
import { KubeBlockSource, NodeIpam } from "#features/ipam";
import { POD_DEFAULTS, PodNetwork } from "#features/pod-network";
import { exportRoutes, RouteSync } from "#features/routes";
import { ALLOWED_SOURCES } from "#features/source-guard";
import { acquireFileLock } from "#kernel/lock";
import { openKernel } from "#kernel/net";
import { findObject, isApiFailure, type KubeApi, resources } from "#kube/client";
import { type EventInput, EventRecorder } from "#kube/events";
import { allSynced } from "#kube/informer";
import { DEFAULT_SOCKET } from "#wire/cni";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { KEPT_FILES_NOTE, keepCniFiles } from "../../shared/cni-files/index.ts";
import { servedLately } from "../../shared/cni-plugin/index.ts";
import {
  coilLogFlags,
  endpointFlags,
  followServers,
  kubeFlags,
  loggerOf,
  openClient,
  requireNodeName,
} from "../../shared/daemon/index.ts";
import { leaveEstate } from "../../shared/estate/index.ts";
import {
  FORWARDING_KEYS,
  formerSettingsPath,
  readFormerSettings,
  recordFormerSettings,
} from "../../shared/former-settings/index.ts";
import { serveHealth, serveMetrics } from "../../shared/http-endpoints/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { sayOpenFiles } from "../../shared/open-files/index.ts";
import {
  asideMetrics,
  recordAttachments,
  recordCalls,
  recordFlag,
  recordPasses,
} from "../../shared/pass-record/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "../../shared/program/index.ts";
import { keepServedMark } from "../../shared/served-mark/index.ts";
import { runChained } from "./chained.ts";
import { clientCalls } from "./client-calls.ts";
import { cniDeps, statusOf, tryAgain } from "./cni-deps.ts";
import { coildEstate, coildLock } from "./estate.ts";
import { ExtraSources } from "./extra-sources.ts";
import { collectForgotten } from "./forgotten/index.ts";
import { GuardKeeper } from "./guard-keeper.ts";
import { readThisHost } from "./host-identity.ts";
import { inspectClients, inspectThisNode } from "./inspect.ts";
import { keepForwardOf } from "./keep-forward.ts";
import { keepKernel, rememberKernel } from "./keep-kernel.ts";
import { LostAttachments } from "./lost-attachments.ts";
import { coildMetrics } from "./metrics.ts";
import { namespaceInformer } from "./namespaces.ts";
import { clientsOpener } from "./open-clients.ts";
import { openGuard, watchGuard } from "./open-guard.ts";
import { OwnNode } from "./own-node.ts";
import { PodNotes } from "./pod-notes.ts";
import { RemovalConflict } from "./removal-conflict.ts";
import { serveCalls } from "./serve-calls.ts";
import { SetUpProbe } from "./set-up-probe.ts";
import { watchKernel } from "./watch-kernel.ts";
import { watchOwnObjects } from "./watch-own-objects.ts";

const id = { min: 1, max: 4_294_967_295 };
/** Behind another plugin Coil's manifests set the table to 0 or 255 and the protocol to 2, because that plugin makes the routes. */
const MIN_PROTOCOL_ID = 3;
const flags = {
  ...endpointFlags(":9384", ":9385"),
  podTableId: integerFlag("pod-table-id", POD_DEFAULTS.tableId, "routing table of the routes to pods", {
    ...id,
    min: 0,
  }),
  podRulePrio: integerFlag(
    "pod-rule-prio",
    POD_DEFAULTS.rulePriority,
    "priority of the rule that directs packets to that table",
    {
      min: 1,
      max: 32_765,
    },
  ),
  exportTableId: integerFlag("export-table-id", 119, "routing table that blocks are exported to", id),
  protocolId: integerFlag("protocol-id", POD_DEFAULTS.protocolId, "protocol number that marks our routes", {
    min: 0,
    max: 255,
  }),
  socket: stringFlag("socket", DEFAULT_SOCKET, "UNIX socket that CNI executables call", "PATH"),
  nodeAddresses: choiceFlag(
    "node-addresses",
    ["host", "any"],
    "host",
    "InternalIPs of this Node: with host one of them must be an address of this host, else another machine has the name of this node; any: they are not compared",
  ),
  compatCalico: switchFlag("compat-calico", false, "name the host's links as Calico does"),
  registerFromMain: switchFlag("register-from-main", false, "find existing pods by routes in the main table too"),
  gcInterval: durationFlag(
    "addressblock-gc-interval",
    "5m",
    "how often this node's blocks are compared with the API server",
    { min: "1s" },
  ),
  attachmentGcGrace: durationFlag(
    "attachment-gc-grace",
    "15m",
    "how long an attachment without a sandbox and without a Pod object is kept: its container runtime has forgotten it; 0s: for ever",
  ),
  criSocket: stringFlag(
    "cri-socket",
    "",
    "socket of the container runtime, which is asked for its sandboxes; empty: a namespace without a process has none",
    "PATH",
  ),
  clearRoutesOnShutdown: switchFlag(
    "clear-routes-on-shutdown",
    false,
    "withdraw the exported routes when coild ends after its Node was deleted",
  ),
  blockReleaseDelay: durationFlag("block-release-delay", "0s", "how long an empty block is kept for reuse"),
  mtu: integerFlag("mtu", 0, "MTU of pods, bytes; 0: the smallest of the links with a default route", {
    min: 0,
    max: 65_535,
  }),
  hostLinkLocal: switchFlag("host-link-local", false, "gateway of IPv4 pods is 169.254.1.1, not the node's address"),
  enableIpam: switchFlag(
    "enable-ipam",
    true,
    "give pods addresses and links; false: coil is chained behind another interface plugin",
  ),
  sourceGuard: choiceFlag(
    "source-guard",
    ["on", "count", "off"],
    "on",
    "packets of pods with sources that are not theirs: on drops them, count lets them pass and reports them, off does not look",
  ),
  enableEgress: switchFlag("enable-egress", true, "give pods that name an Egress a NAT client"),
  egressPort: integerFlag("egress-port", 5555, "UDP port of the tunnels to routers; the same as theirs", {
    min: 1,
    max: 65_535,
  }),
  tunnelDriver: choiceFlag(
    "tunnel-driver",
    TUNNEL_DRIVERS,
    "fou",
    "how packets to routers are carried; auto: fou if the kernel has it, else vxlan; the same as the routers'",
  ),
  inClusterCidr: repeatedFlag(
    "in-cluster-cidr",
    (text) => Cidr.parse(text),
    "a range that a wider destination of an Egress does not capture; default: the private ranges",
    "CIDR",
  ),
  backend: choiceFlag(
    "backend",
    FILTER_BACKENDS,
    "iptables",
    "packet filter of clients whose Egress is originatingOnly",
  ),
  enableOriginatingOnly: switchFlag(
    "enable-originating-only",
    false,
    "answers of connections that came in from elsewhere leave by their way, not through an Egress; spec.originatingOnly of an Egress goes before",
  ),
  ...recordFlag,
  ...kubeFlags,
  ...coilLogFlags,
};

/** Maximum time in which exported routes are withdrawn at shutdown, milliseconds (docs/spec/pod-network.md#4.8). */
const CLEAR_BUDGET_MS = 10_000;
/** An ADD waits this long for the permission to use an Egress, milliseconds: less than executables wait for an answer. */
const PERMISSION_MS = 40_000;
/** Within this time each NAT client is compared with its pod, milliseconds. */
const CLIENT_RESYNC_MS = 300_000;

/** `coild` (docs/spec/pod-network.md#4 and #5). */
export const coild = defineProgram({
  name: "coild",
  summary: "Gives addresses and links to the pods of this node. Serves the calls of the CNI executable coil.",
  flags,
  notes: [`Environment: COIL_NODE_NAME, the name of this node (required). ${KEPT_FILES_NOTE}`, FOLLOWED_SERVERS_NOTE],
  metrics: [coildMetrics, restClientMetrics, asideMetrics],
  estate: coildEstate,
  run: async ({ values, signal }) => {
    const nodeName = requireNodeName();
    const log = loggerOf("coild", values);
    const registry = createRegistry();
    const health = new Health({ log: log.child("health") });
    const faults = faultsOf(values);
    if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
    requirePrivileges("create the links of pods", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    sayOpenFiles(log);
    // A second coild of this node waits here until the first has ended: both would allocate the same addresses.
    await using lock = await acquireFileLock(coildLock(values.socket), {
      signal,
      onWait: () => log.info("waiting for another coild on this node to end"),
    });
    const kernel = openKernel();
    await using api = await openClient("coild", values, { registry, clock: systemClock });
    await using _servers = followServers("coild", [api], { log });
    await using _metrics = await serveMetrics({ registry, log, api }, values);
    await using _health = await serveHealth({ health, log }, { address: values.healthAddr });

    const metrics = coildMetrics(registry);
    const events = new EventRecorder(api, {
      controller: "coild",
      instance: nodeName,
      onLoss: reportLoss(log),
      clock: systemClock,
    });
    const recording = recordPasses({ folder: values.recordDir, signal }, { events, log, clock: systemClock });
    asideMetrics(registry)(() => recording?.passes.aside ?? []);
    const { inClusterCidr, egressPort: port, tunnelDriver: asked, enableOriginatingOnly: originatingOnly } = values;
    const inCluster = inClusterCidr.length > 0 ? inClusterCidr : PRIVATE_RANGES;
    const settings = {
      nodeName,
      asked,
      port,
      inCluster,
      originatingOnly,
      permissionMs: PERMISSION_MS,
      resyncMs: CLIENT_RESYNC_MS,
    };
    const clientOptions = values.enableEgress ? settings : undefined;
    const loadModules = (at: AbortOptions): Promise<void> => loadDriverModules(asked, { ...at, kernel, log });
    if (values.enableEgress) await loadModules({ signal });
    const steps = recording?.stepsFor(resources.namespaces);
    const namespaces = namespaceInformer(api, { health, steps, clock: systemClock });
    const filters = filterOpeners(values.backend);
    const openClients = clientsOpener(
      { kernel, api, namespaces, events, health, metrics, filters, loadModules, recording, log },
      clientOptions,
    );
    using own = kernel.openNetNs("own");
    leaveEstate("coild", coildEstate(values), { log });
    using opened = openGuard({ netns: own, health, log }, values);
    const { guard } = opened;
    if (!values.enableIpam) {
      const options = { nodeName, socketPath: values.socket, signal };
      await runChained(
        { kernel, api, namespaces, events, health, metrics, lock, recording, log },
        options,
        openClients,
      );
      log.info("ended");
      return EXIT.ok;
    }
    const socketPart = health.part("socket", { needed: "always" });
    const ipamPart = health.part("ipam");
    const routesPart = health.part("routes", { needed: "always" });
    using stack = kernel.openStack(own);
    const formerSettings = formerSettingsPath(values.socket);
    using network = new PodNetwork(
      {
        kernel,
        log: log.child("pod-network"),
        guard,
        recorded: recordAttachments(recording, { nodeName }),
        beforeSettings: (keys) => recordFormerSettings(formerSettings, stack.sysctl, keys),
        forwardsForUs: () => readFormerSettings(formerSettings)[FORWARDING_KEYS[1]] === "0",
      },
      {
        tableId: values.podTableId,
        rulePriority: values.podRulePrio,
        protocolId: values.protocolId,
        compatCalico: values.compatCalico,
        hostLinkLocal: values.hostLinkLocal,
        mtuBytes: values.mtu === 0 ? undefined : values.mtu,
      },
    );
    recordFormerSettings(formerSettings, stack.sysctl, FORWARDING_KEYS);
    network.initHost();
    const halfMade = network.removeHalfMade();
    const routesDirty = new Dirty();
    const kernelDirty = new Dirty();
    const forwardDirty = new Dirty();
    const onBlocksChanged = (): void => {
      routesDirty.mark();
      kernelDirty.mark();
      forwardDirty.mark();
    };
    const ownNode = new OwnNode(
      {
        host: readThisHost(),
        network,
        events,
        health: health.part("node", { needed: "always" }),
        onTwin: metrics.onTwin,
        onSettled: () => ipam.noteMayRelease(),
        log: log.child("node"),
        clock: systemClock,
      },
      { nodeName, comparesAddresses: values.nodeAddresses === "host" },
    );
    const source = new KubeBlockSource({ api, log: log.child("blocks") }, { nodeName });
    const ipam = new NodeIpam(
      {
        source,
        log: log.child("ipam"),
        clock: systemClock,
        onBlocksChanged,
        mayRelease: () => ownNode.isSettled,
        onBlockWait: metrics.onBlockWait,
      },
      { collectIntervalMs: values.gcInterval, releaseDelayMs: values.blockReleaseDelay },
    );
    const notes = new PodNotes();
    const keepGuard =
      guard === undefined
        ? undefined
        : new GuardKeeper(
            {
              guard,
              network,
              notes,
              health: health.part("source-guard"),
              onRepaired: metrics.onGuardRepaired,
              log: log.child("source-guard"),
            },
            guard.mode,
          );
    if (guard !== undefined) metrics.observeGuard(guard);
    const survey = rememberKernel({ network, ipam }, values);
    const { attached, unowned } = survey;
    // Before the first ADD: its link is guarded from the first packet.
    keepGuard?.keep(survey, () => undefined);
    log.info("attachments of pods were read from the kernel", {
      attachments: attached.length,
      strays: unowned.length,
      halfMade,
    });
    const routes = new RouteSync(stack, { table: values.exportTableId, protocol: values.protocolId });
    const place = { table: values.exportTableId, protocol: values.protocolId };
    const exported = (): ReturnType<typeof exportRoutes> => {
      const loopback = stack.links.get({ name: "lo" });
      if (loopback !== undefined && !loopback.up) stack.links.set(loopback.index, { up: true });
      return exportRoutes(ipam.prefixes, loopback?.index ?? 1, place);
    };

    const setUp = new SetUpProbe({ kernel, health: health.part("set-up", { needed: "always" }) });
    const ready = new Deferred();
    let isReady = false;
    // ADDs that wait get the rejection; if no ADD waits, the rejection is ignored.
    ready.promise.catch(() => undefined);
    const extraSources =
      guard === undefined
        ? undefined
        : new ExtraSources({
            network,
            namespace: (name) => namespaces.store.get(name),
            events,
            onChange: () => kernelDirty.mark(),
            log: log.child("source-guard"),
            clock: systemClock,
          });
    if (extraSources !== undefined)
      namespaces.addHandler({
        onAdd: ({ metadata }) => extraSources.noteNamespace(metadata.name),
        onUpdate: (before, { metadata }) => {
          const [old, now] = [before.metadata, metadata].map(({ annotations }) => annotations?.[ALLOWED_SOURCES]);
          if (old !== now) extraSources.noteNamespace(metadata.name);
        },
      });
    const clients = openClients(() => network.places());
    const service = new CniService(
      cniDeps({
        nodeName,
        api,
        ipam,
        network,
        namespaces: namespaces.store,
        clients: clientCalls(clients),
        ready: ready.promise,
        ownNode,
        isReady: () => isReady || servedLately(values.socket, systemClock.now()),
        setUpFault: () => setUp.fault,
        oneSandboxPerPod: values.compatCalico,
        extraSources,
        notes,
        log: log.child("cni"),
        clock: systemClock,
      }),
    );
    const group = new TaskGroup(signal);
    metrics.observe(ipam);
    await using _server = await serveCalls({
      log,
      socketHealth: socketPart,
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
      onBug: (error) =>
        group.spawn(async () => {
          throw error;
        }),
    });
    log.info("serving", { socket: values.socket, node: nodeName });

    const lockPart = health.part("lock", { needed: "always" });
    group.spawn((at) => lock.keep({ health: lockPart, log, clock: systemClock }, { signal: at }));
    const served = new Dirty();
    const canServe = (): boolean => statusOf(ipam, { isReady, setUpFault: setUp.fault }) === undefined;
    const servedPart = health.part("served-mark");
    group.spawn((at) =>
      keepServedMark(
        { socket: values.socket, canServe, dirty: served, health: servedPart, clock: systemClock },
        { signal: at },
      ),
    );
    group.spawn((at) => namespaces.run({ signal: at }));
    if (clients !== undefined) group.spawn((at) => clients.run({ signal: at }));
    const { registerFromMain } = values;
    const kernelPart = health.part("kernel", { needed: "always" });
    group.spawn((at) => setUp.run({ signal: at }));
    const lost = new LostAttachments({ health: health.part("attachments", { needed: "always" }), log, notes });
    const conflict = new RemovalConflict({ clock: systemClock, log, onConflict: metrics.onConflict });
    const onSurveyed: Parameters<typeof keepKernel>[0]["onSurveyed"] = (repaired) => {
      metrics.onRepaired(repaired);
      // A client that was compared meanwhile may have lacked an address.
      if (repaired.pods + repaired.links > 0) clients?.recheck();
      conflict.surveyed(repaired);
    };
    const onRemade: Parameters<typeof keepKernel>[0]["onRemade"] = ({ containerId, ifname }) =>
      log.warn(
        "the link of a pod was removed and has been created again, without the limits and policies of later plugins: delete the pod if it needs them",
        { containerID: containerId, ifname },
      );
    const keeper = {
      network,
      ipam,
      lost,
      guard: keepGuard,
      dirty: kernelDirty,
      health: kernelPart,
      onSurveyed,
      onRemade,
    };
    const watched = { netns: own, network, exportedTo: place, pods: kernelDirty, exported: routesDirty };
    group.spawn((at) => watchKernel({ ...watched, clock: systemClock, log }, { signal: at }));
    group.spawn((at) => keepKernel(keeper, { registerFromMain, signal: at }));
    const forwardPart = health.part("forward");
    forwardPart.ok();
    group.spawn(async (at) => {
      // Before, no block is known, and the rules of an earlier process would be removed.
      await unlessAborted(ready.promise, { signal: at });
      const parts = { netns: own, blocks: () => ipam.prefixes, dirty: forwardDirty, health: forwardPart };
      await keepForwardOf({ ...parts, log: log.child("forward") }, { signal: at });
    });
    group.spawn((at) => events.run({ signal: at }));
    const forgottenPart = health.part("forgotten");
    group.spawn(async (at) => {
      await unlessAborted(ready.promise, { signal: at });
      const collector = { network, service, api, events, onCollected: metrics.onCollected, health: forgottenPart };
      await collectForgotten(
        { ...collector, log: log.child("forgotten"), clock: systemClock },
        { nodeName, criSocket: values.criSocket, graceMs: values.attachmentGcGrace, signal: at },
      );
    });
    const files = { env: process.env, nodeName, events, health, log: log.child("cni-files"), clock: systemClock };
    group.spawn((at) => keepCniFiles(files, { signal: at }));
    const eventsPart = health.part("events");
    group.spawn((at) => notes.run({ api, events, nodeName, health: eventsPart }, { signal: at }));
    if (keepGuard !== undefined)
      group.spawn((at) => watchGuard({ guard: keepGuard, dirty: kernelDirty, clock: systemClock }, { signal: at }));
    if (extraSources !== undefined)
      group.spawn(async (at) => {
        await allSynced([namespaces], { signal: at });
        await unlessAborted(ready.promise, { signal: at });
        await extraSources.learn({ api, nodeName }, { signal: at });
      });
    const watchPart = health.part("watch");
    group.spawn((at) => ownNode.run({ signal: at }));
    group.spawn((at) => watchOwnObjects({ api, ipam, ownNode, nodeName, health: watchPart, log }, { signal: at }));
    group.spawn(async (at) => {
      await learnBlocks({ api, ipam, ownNode, nodeName, log, health: ipamPart }, at);
      // Its first sync is made at once, before an ADD that waits is answered.
      const exporting = reconcile({
        dirty: routesDirty,
        health: routesPart,
        signal: at,
        resyncMs: values.gcInterval,
        sync: async () => {
          const changes = routes.sync(exported());
          if (changes > 0) log.info("exported routes changed", { changes, table: values.exportTableId });
          return changes;
        },
      });
      ready.resolve();
      isReady = true;
      served.mark();
      kernelDirty.mark();
      await Promise.all([exporting, ipam.run({ signal: at, health: ipamPart })]);
    });
    await group.wait();
    if (values.clearRoutesOnShutdown) await clearRoutes(api, nodeName, routes, log);
    log.info("ended");
    return EXIT.ok;
  },
});

/** Pure: the faults of the flags; each text names the flag. */
export function faultsOf(values: {
  readonly enableIpam: boolean;
  readonly enableEgress: boolean;
  readonly podTableId: number;
  readonly exportTableId: number;
  readonly protocolId: number;
}): string[] {
  const faults: string[] = [];
  if (!values.enableIpam && !values.enableEgress)
    faults.push("--enable-ipam, --enable-egress: both are false, so coild has no work; set one of them to true");
  if (!values.enableIpam) return faults;
  if (values.podTableId === 0)
    faults.push(
      "--pod-table-id: 0 is for --enable-ipam=false only; choose a table that nothing else uses, such as 116",
    );
  if (values.protocolId < MIN_PROTOCOL_ID)
    faults.push(`--protocol-id: ${values.protocolId} is used by the kernel itself; choose 3 to 255, such as 30`);
  if (values.podTableId === values.exportTableId)
    faults.push(
      `--export-table-id: ${values.exportTableId} is the table of --pod-table-id too; choose two different tables`,
    );
  return faults;
}

/** Returns a function that logs why events cannot be written, once for each reason. */
function reportLoss(log: Logger): (event: EventInput, why: string) => void {
  const repeats = new Repeats();
  return ({ reason }, error) => {
    if (repeats.isNew("events", error)) log.warn("an Event could not be written to the API server", { reason, error });
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
