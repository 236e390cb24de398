import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { type AbortOptions, Backoff, Dirty, retry, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { ConfigError, choiceFlag, integerFlag, repeatedFlag, stringFlag } from "#base/config";
import { ExpectedError } from "#base/errors";
import { Health } from "#base/health";
import { Repeats } from "#base/log";
import { createRegistry } from "#base/metrics";
import { reconcile } from "#base/reconcile";
import { keepSocket } from "#base/unix-socket";
import { OpenVSwitch } from "#cloud/ovsdb";
import { INSPECT_NICS_PATH, inspectHandler, serveGrpc } from "#features/cni";
import { parseHandOver, waitingText } from "#features/nic";
import {
  applyReport,
  ClaimBook,
  ClaimFiles,
  LostDevices,
  NicCallError,
  NicService,
  nicHandlers,
  operatorSettings,
  parseAllowed,
  plannedReport,
} from "#features/nic-agent";
import {
  cniResult,
  DEVICES,
  inspectNics,
  Journal,
  NicNetwork,
  nicAgentState,
  planAdded,
  planClaim,
  type SandboxPlan,
  shownNics,
} from "#features/nic-cni";
import type { NicNode } from "#features/nic-report";
import { acquireFileLock } from "#kernel/lock";
import { Monitors } from "#kernel/monitor";
import { openKernel } from "#kernel/net";
import { announceAddresses } from "#kernel/socket";
import { findObject, resources } from "#kube/client";
import { EventRecorder } from "#kube/events";
import { createInformer } from "#kube/informer";
import { CLAIM_NODE_LABEL, type NicClaim, nicResources, nodeLabelValue } from "#kube/nic";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { KEPT_FILES_NOTE, keepCniFiles } from "../../shared/cni-files/index.ts";
import { DEFAULT_VPC_SOCKET } from "../../shared/cni-plugin/index.ts";
import {
  endpointFlags,
  followServers,
  informerHealth,
  kubeFlags,
  logFlags,
  loggerOf,
  openClient,
  requireNodeName,
} from "../../shared/daemon/index.ts";
import { leaveEstate, STATE_FOLDER } from "../../shared/estate/index.ts";
import { serveHealth, serveMetrics } from "../../shared/http-endpoints/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { sayOpenFiles } from "../../shared/open-files/index.ts";
import { asideMetrics, recordCalls, recordFlag, recordPasses } from "../../shared/pass-record/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "../../shared/program/index.ts";
import { keepServedMark, markSocket } from "../../shared/served-mark/index.ts";
import { nicAgentEstate } from "./estate.ts";
import { kindOf } from "./failures.ts";
import { keepDisk } from "./keep-disk.ts";
import { nicAgentMetrics } from "./metrics.ts";
import { nodeSettings } from "./node-settings.ts";
import { reportEach } from "./report-each.ts";
import { usedSwitches } from "./used-switches.ts";
import { watchDevices } from "./watch-devices.ts";

/** The interval at which reports and ports are compared with what is there, milliseconds. */
const RESYNC_MS = 60_000;
/** Time of a live read of a claim, milliseconds. */
const READ_MS = 5000;

const flags = {
  ...endpointFlags(":9394", ":9395"),
  socket: stringFlag(
    "socket",
    DEFAULT_VPC_SOCKET,
    "UNIX socket that the CNI executables vpc-neutron and vpc-alcor call",
    "PATH",
  ),
  stateDir: stringFlag("state-dir", STATE_FOLDER, "folder of the claims and the journal", "PATH"),
  ovsdb: stringFlag(
    "ovsdb",
    "/var/run/openvswitch/db.sock",
    "UNIX socket of Open vSwitch's database; a network may name another that is allowed",
    "PATH",
  ),
  integrationBridge: stringFlag("integration-bridge", "br-int", "bridge of ports that do not say theirs", "NAME"),
  plugMode: choiceFlag(
    "plug-mode",
    ["auto", "hybrid", "direct"],
    "auto",
    "hybrid: a Linux bridge before the integration bridge; direct: none; auto: as the port's binding says, else hybrid",
  ),
  vmOwnerUid: integerFlag("vm-owner-uid", 0, "user who may open the TAP devices of virtual machines", {
    min: 0,
    max: 0xffff_fffe,
  }),
  nsPrefix: stringFlag("ns-prefix", "vpc-ns", "vpc-alcor: beginning of the names of VPCs' namespaces", "TEXT"),
  allowConfiguration: repeatedFlag(
    "allow-configuration",
    (text) => {
      const allowed = parseAllowed(text);
      if (allowed !== undefined) return allowed;
      const keys = "ovsdb, integrationBridge, plugMode, vmOwnerUid or nsPrefix";
      throw new ConfigError("invalid-value", [`"${text}" is not KEY=VALUE with the key ${keys}`]);
    },
    "a further value that the configuration of a network may have, such as integrationBridge=br-second; others than this agent's own are refused",
    "KEY=VALUE",
  ),
  ...recordFlag,
  ...kubeFlags,
  ...logFlags,
};

/** `nic-agent` (docs/spec/vpc-nics.md#7). */
export const nicAgent = defineProgram({
  name: "nic-agent",
  summary:
    "Plugs ports of VPCs into the pods of this node. Serves the calls of the CNI executables vpc-neutron and vpc-alcor.",
  flags,
  notes: [`Environment: COIL_NODE_NAME, the name of this node (required). ${KEPT_FILES_NOTE}`, FOLLOWED_SERVERS_NOTE],
  metrics: [nicAgentMetrics, restClientMetrics, asideMetrics],
  estate: nicAgentEstate,
  run: async ({ values, signal }) => {
    const nodeName = requireNodeName();
    const log = loggerOf("nic-agent", values);
    const registry = createRegistry();
    const metrics = nicAgentMetrics(registry);
    const health = new Health({ log: log.child("health") });
    requirePrivileges("make the NICs of pods", ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"]);
    sayOpenFiles(log);
    mkdirSync(dirname(values.socket), { recursive: true, mode: 0o755 });
    mkdirSync(values.stateDir, { recursive: true, mode: 0o755 });
    // A second agent of this node would not know what the first one is making.
    await using lock = await acquireFileLock(nicAgentState(values.stateDir).lock, {
      signal,
      onWait: () => log.info("waiting for another nic-agent on this node to end"),
    });
    const kernel = openKernel();
    leaveEstate("nic-agent", nicAgentEstate(values), { log });
    await using api = await openClient("nic-agent", values, { registry, clock: systemClock });
    await using _servers = followServers("nic-agent", [api], { log });
    await using _metrics = await serveMetrics({ registry, log, api }, values);
    await using _health = await serveHealth({ health, log }, { address: values.healthAddr });
    await using monitors = new Monitors({
      onFailure: (error) => log.warn("a watch of devices failed", { error: error.message }),
    });

    const repeats = new Repeats();
    const events = new EventRecorder(api, {
      controller: "nic-agent",
      instance: nodeName,
      onLoss: ({ reason }, error) => {
        if (repeats.isNew("events", error))
          log.warn("an Event could not be written to the API server", { reason, error });
      },
      clock: systemClock,
    });
    const recording = recordPasses({ folder: values.recordDir, signal }, { events, log, clock: systemClock });
    asideMetrics(registry)(() => recording?.passes.aside ?? []);
    /** A pass over a claim. Resolves to `undefined` while it is set aside: its NICs stay as they are. */
    const passOf = async <T>(name: string, claim: NicClaim, work: () => Promise<T>, at: AbortSignal) => {
      if (recording === undefined) return await work();
      const { name: key, namespace, resourceVersion } = claim.metadata;
      const of = { name, key: `${namespace}/${key}`, version: () => resourceVersion, about: () => podOf(claim) };
      const done = await recording.pass(of, work, { signal: at });
      return "value" in done ? done.value : undefined;
    };
    /** A repair of a container's ports in its switch, as a pass. Its event is the pod's, if the pod has its claim. */
    const recordRepair = async (
      { containerId, podUid }: SandboxPlan,
      work: () => Promise<number>,
      at: AbortSignal,
    ): Promise<number | undefined> => {
      if (recording === undefined) return await work();
      const about = () => {
        const claim = claims.get(podUid);
        return claim === undefined ? undefined : podOf(claim);
      };
      const of = { name: "switch-repairs", key: containerId, version: () => "", about };
      const done = await recording.pass(of, work, { signal: at });
      return "value" in done ? done.value : undefined;
    };
    const claims = new ClaimBook({
      files: new ClaimFiles(nicAgentState(values.stateDir).claims),
      log: log.child("claims"),
      clock: systemClock,
    });
    const switches = new Map<string, OpenVSwitch>();
    const switchOf = (socketPath: string): OpenVSwitch => {
      // One for each socket that a network of this node names.
      const found = switches.get(socketPath) ?? new OpenVSwitch({ clock: systemClock }, { socketPath });
      switches.set(socketPath, found);
      return found;
    };
    const journal = new Journal(nicAgentState(values.stateDir).journal);
    const network = new NicNetwork({
      kernel,
      switchOf,
      journal,
      watch: watchDevices(monitors),
      announce: announceAddresses,
      recorded: (plan, repair, at) => recordRepair(plan, repair, at.signal),
      clock: systemClock,
      log: log.child("network"),
    });
    log.info("NICs of pods were read from the journal", { sandboxes: network.plans().length });
    const reports = new Dirty();
    const hotPlug = new Dirty();
    const switchDirty = new Dirty();
    /** Forgotten with the claims. */
    const losses = new LostDevices();
    const { ovsdb, integrationBridge, plugMode, vmOwnerUid, nsPrefix, allowConfiguration } = values;
    const operator = operatorSettings({ ovsdb, integrationBridge, plugMode, vmOwnerUid, nsPrefix }, allowConfiguration);
    const node = nodeSettings(values);
    const service = new NicService({
      claims,
      readPod: async (namespace, name, options) => {
        const pod = await findObject(api, resources.pods, { namespace, name }, { ...options, timeoutMs: READ_MS });
        return pod === undefined ? undefined : { uid: pod.metadata.uid, annotations: pod.metadata.annotations ?? {} };
      },
      readClaim: (namespace, name, options) =>
        findObject(api, nicResources.nicClaims, { namespace, name }, { ...options, timeoutMs: READ_MS }),
      handOver: parseHandOver,
      describe: waitingText,
      networks: DEVICES,
      plan: (request) => planClaim(request, node),
      resultOf: cniResult,
      planAdded: (plan, claim, nic) => planAdded(plan, claim, nic, node),
      network,
      operator,
      kindOf,
      onPlugged: (uid, names) => {
        const { isPlugged } = service.stateOf(uid);
        if (claims.get(uid) !== undefined) losses.note(uid, names, { isPlugged, now: systemClock.now() });
        reports.mark();
        // The claim may have changed while an ADD was at work.
        hotPlug.mark();
      },
      onNews: (claim, news) => events.record({ regarding: podOf(claim), ...news }),
      onFailed: (claim, note) => events.record({ regarding: podOf(claim), type: "Warning", reason: "NicFailed", note }),
      onStep: metrics.onStep,
      passOf: (claim, work, at) => passOf("hot-plug", claim, work, at),
      place: { nodeName },
      clock: systemClock,
      log: log.child("cni"),
    });

    const informer = createInformer(api, nicResources.nicClaims, {
      labelSelector: `${CLAIM_NODE_LABEL}=${nodeLabelValue(nodeName)}`,
      onHealth: informerHealth(health, "nicclaims"),
      steps: recording?.stepsFor(nicResources.nicClaims),
      clock: systemClock,
    });
    let known = "";
    const used = (): ReadonlySet<string> => usedSwitches(network.plans(), claims.list(), values.ovsdb);
    /** The switch is looked at when one is needed that was not before, or none any more. */
    const noteSwitches = (): void => {
      if ([...used()].join() !== known) switchDirty.mark();
    };
    const onClaim = (claim: NicClaim): void => {
      claims.set(claim);
      reports.mark();
      hotPlug.mark();
      noteSwitches();
    };
    informer.addHandler({
      onAdd: (claim) => onClaim(claim),
      onUpdate: (_before, claim) => onClaim(claim),
      onDelete: ({ metadata: { name, namespace } }) => {
        claims.remove(name, namespace);
        noteSwitches();
        if (claims.get(name) === undefined) losses.forget(name);
      },
    });
    /** For audits: what is there, without a change. */
    const inspection = async ({ signal: at = signal }: AbortOptions): Promise<NicNode> => ({
      node: nodeName,
      claims: claims.list().map(({ metadata }) => metadata.name),
      ...(await inspectNics({ kernel, switchOf }, network.plans(), { ovsdb: values.ovsdb, signal: at })),
    });
    /** Returns true if the claim's status was written. */
    const reportOf = async (claim: NicClaim, at: AbortSignal): Promise<boolean> => {
      const uid = claim.metadata.name;
      const { isPlugged, nics } = service.stateOf(uid);
      const shown = nics === undefined ? undefined : shownNics(nics, claim);
      const state = { isPlugged, lost: losses.of(uid), nics: shown };
      const report = plannedReport(claim, state, { nodeName, now: systemClock.now() });
      if (report === undefined) return false;
      await applyReport(api, claim, report, { signal: at });
      return true;
    };
    const group = new TaskGroup(signal);
    const onBug = (error: unknown): void =>
      group.spawn(async () => {
        throw error;
      });
    const handlers = nicHandlers(recordCalls(service.call, recording, (why) => new NicCallError("try-again", why)));
    const calls = {
      socketPath: values.socket,
      handlers: { ...handlers, [INSPECT_NICS_PATH]: inspectHandler(inspection) },
      onHandled: metrics.onHandled,
      onBug,
      clock: systemClock,
    };
    markSocket(values.socket, { kind: "nic-agent", usual: DEFAULT_VPC_SOCKET, log });
    await using _server = await keepSocket(() => serveGrpc(calls), {
      path: values.socket,
      health: health.part("socket", { needed: "always" }),
      log,
      clock: systemClock,
      onBug,
    });
    const lockPart = health.part("lock", { needed: "always" });
    group.spawn((at) => lock.keep({ health: lockPart, log, clock: systemClock }, { signal: at }));
    log.info("serving", { socket: values.socket, node: nodeName, claims: claims.list().length });

    const served = { socket: values.socket, canServe: () => true, dirty: new Dirty(), clock: systemClock };
    const servedPart = health.part("served-mark");
    group.spawn((at) => keepServedMark({ ...served, health: servedPart }, { signal: at }));
    const diskPart = health.part("disk", { needed: "always" });
    group.spawn((at) => keepDisk({ journal, health: diskPart, clock: systemClock }, { signal: at }));
    const reportsPart = health.part("reports");
    group.spawn((at) => informer.run({ signal: at }));
    group.spawn((at) => events.run({ signal: at }));
    const files = { env: process.env, nodeName, events, health, log: log.child("cni-files"), clock: systemClock };
    group.spawn((at) => keepCniFiles(files, { signal: at }));
    group.spawn((at) =>
      reconcile({
        dirty: reports,
        inputs: { claims: informer },
        health: reportsPart,
        signal: at,
        resyncMs: RESYNC_MS,
        sync: ({ pass }) => {
          const listed = informer.store.list();
          if (pass === 1) claims.keepOnly(new Set(listed.map(({ metadata }) => metadata.name)));
          return reportEach(listed, (claim) => passOf("reports", claim, () => reportOf(claim, at), at), { signal: at });
        },
      }),
    );
    const hotPlugPart = health.part("hot-plug");
    group.spawn(async (at) => {
      // A claim of the disk may be older than the NICs that the previous agent created.
      await reconcile({
        dirty: hotPlug,
        inputs: { claims: informer },
        health: hotPlugPart,
        signal: at,
        resyncMs: RESYNC_MS,
        sync: (options) => service.follow(options),
      });
    });
    group.spawn((at) =>
      reconcile({
        dirty: switchDirty,
        health: health.part("switch", { needed: "always" }),
        signal: at,
        resyncMs: RESYNC_MS,
        sync: async () => {
          let ports = 0;
          const now = used();
          known = [...now].join();
          for (const ovsdb of now) ports += await network.repair(ovsdb, { signal: at });
          metrics.onReplugged(ports);
          return ports;
        },
      }),
    );
    const backoff = new Backoff({ initialMs: 200, maxMs: 5000 });
    const onSwitch = (): void => {
      backoff.reset();
      switchDirty.mark();
    };
    group.spawn((at) =>
      retry(() => switchOf(values.ovsdb).watch(onSwitch, { signal: at }), {
        signal: at,
        clock: systemClock,
        backoff,
        isPassing: (error) => {
          // A switch that is gone is told where pods need it.
          switchDirty.mark();
          return error instanceof ExpectedError;
        },
      }),
    );
    await group.wait();
    log.info("ended");
    return EXIT.ok;
  },
});

/** The pod of a claim, for events. */
function podOf({ metadata: { namespace }, spec: { podName: name, podUID: uid } }: NicClaim) {
  return { apiVersion: "v1", kind: "Pod", name, uid, ...(namespace === undefined ? {} : { namespace }) };
}
