import { type AbortOptions, Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import type { OpenVSwitch } from "#cloud/ovsdb";
import { parseHandOver, waitingText } from "#features/nic";
import { ClaimBook, ClaimFiles, LostDevices, NicService, operatorSettings } from "#features/nic-agent";
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
} from "#features/nic-cni";
import type { NicNode } from "#features/nic-report";
import { Monitors } from "#kernel/monitor";
import type { Kernel } from "#kernel/net";
import { announceAddresses } from "#kernel/socket";
import { findObject, resources } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import { nicResources } from "#kube/nic";
import { type DaemonKit, openRecording } from "../../shared/daemon-kit/index.ts";
import type { PassRecording } from "../../shared/pass-record/index.ts";
import { ClaimPasses, podOf } from "./claim-passes.ts";
import { kindOf } from "./failures.ts";
import type { NicAgentValues } from "./flags.ts";
import type { nicAgentMetrics } from "./metrics.ts";
import { nodeSettings } from "./node-settings.ts";
import { NodeSwitches, UsedSwitches } from "./node-switches.ts";
import { usedSwitches } from "./used-switches.ts";
import { watchDevices } from "./watch-devices.ts";

/** Time of a live read of a claim, milliseconds. */
const READ_MS = 5000;

/** The kit of `nic-agent`; its environment is the name of the node. */
export type NicAgentKit = DaemonKit<NicAgentValues, string, ReturnType<typeof nicAgentMetrics>>;

/** State that the parts of the agent share. */
export interface Agent {
  readonly claims: ClaimBook;
  readonly journal: Journal;
  readonly network: NicNetwork;
  readonly service: NicService<SandboxPlan>;
  readonly passes: ClaimPasses;
  readonly events: EventRecorder;
  readonly recording: PassRecording | undefined;
  /** The devices that were lost, by claim. An entry goes with its claim. */
  readonly losses: LostDevices;
  readonly ownSwitch: OpenVSwitch;
  readonly used: UsedSwitches;
  /** Marked when the status of claims may have to be written. */
  readonly reports: Dirty;
  /** Marked when claims may want other NICs than containers have. */
  readonly hotPlug: Dirty;
  /** Marked when ports of switches may be missing. */
  readonly switches: Dirty;
  /** The NICs of the node for audits, without a change. */
  readonly inspect: (options: AbortOptions) => Promise<NicNode>;
}

/** Reads claims and journal from the disk, and makes the service of CNI calls. */
export function openAgent(kit: NicAgentKit, kernel: Kernel): Agent {
  const { values, environment: nodeName, log, use } = kit;
  const monitors = use(
    new Monitors({ onFailure: (error) => log.warn("a watch of devices failed", { error: error.message }) }),
  );
  const { events, recording } = openRecording(kit, { controller: "nic-agent", instance: nodeName });
  const paths = nicAgentState(values.stateDir);
  const claims = new ClaimBook({ files: new ClaimFiles(paths.claims), log: log.child("claims"), clock: systemClock });
  const passes = new ClaimPasses(recording, claims);
  const nodeSwitches = new NodeSwitches({ clock: systemClock });
  const journal = new Journal(paths.journal);
  const network = new NicNetwork({
    kernel,
    switchOf: (socketPath) => nodeSwitches.of(socketPath),
    journal,
    watch: watchDevices(monitors),
    announce: announceAddresses,
    recorded: (plan, repair, at) => passes.repair(plan, repair, at.signal),
    clock: systemClock,
    log: log.child("network"),
  });
  log.info("NICs of pods were read from the journal", { sandboxes: network.plans().length });
  const used = new UsedSwitches(() => usedSwitches(network.plans(), claims.list(), values.ovsdb));
  const [reports, hotPlug, switches] = [new Dirty(), new Dirty(), new Dirty()];
  const base = { claims, journal, network, passes, events, recording, losses: new LostDevices(), used };
  const shared = { ...base, reports, hotPlug, switches, ownSwitch: nodeSwitches.of(values.ovsdb) };
  const service = openService(kit, shared);
  const inspect = async ({ signal = kit.signal }: AbortOptions): Promise<NicNode> => ({
    node: nodeName,
    claims: claims.list().map(({ metadata }) => metadata.name),
    ...(await inspectNics({ kernel, switchOf: (path) => nodeSwitches.of(path) }, network.plans(), {
      ovsdb: values.ovsdb,
      signal,
    })),
  });
  return { ...shared, service, inspect };
}

function openService(kit: NicAgentKit, agent: Omit<Agent, "service" | "inspect">): NicService<SandboxPlan> {
  const { values, environment: nodeName, api, metrics, log } = kit;
  const { claims, network, passes, events, losses, reports, hotPlug } = agent;
  const { ovsdb, integrationBridge, plugMode, vmOwnerUid, nsPrefix, allowConfiguration } = values;
  const node = nodeSettings(values);
  const service: NicService<SandboxPlan> = new NicService({
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
    operator: operatorSettings({ ovsdb, integrationBridge, plugMode, vmOwnerUid, nsPrefix }, allowConfiguration),
    kindOf,
    onPlugged: (uid, names) => {
      const { isPlugged } = service.stateOf(uid);
      if (claims.get(uid) !== undefined) losses.note(uid, names, { isPlugged, now: systemClock.now() });
      reports.mark("plugged");
      // The claim may have changed while an ADD was at work.
      hotPlug.mark("plugged");
    },
    onNews: (claim, news) => events.record({ regarding: podOf(claim), ...news }),
    onFailed: (claim, note) => events.record({ regarding: podOf(claim), type: "Warning", reason: "NicFailed", note }),
    onStep: metrics.onStep,
    passOf: (claim, work, at) => passes.of("hot-plug", claim, work, at),
    place: { nodeName },
    clock: systemClock,
    log: log.child("cni"),
  });
  return service;
}
