import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import type { CniService } from "#features/cni";
import type { EgressClients } from "#features/egress";
import { KubeBlockSource, NodeIpam } from "#features/ipam";
import { PodNetwork } from "#features/pod-network";
import { exportRoutes, RouteSync } from "#features/routes";
import { ALLOWED_SOURCES } from "#features/source-guard";
import type { NetStack } from "#kernel/net";
import {
  FORWARDING_KEYS,
  formerSettingsPath,
  readFormerSettings,
  recordFormerSettings,
} from "../../shared/former-settings/index.ts";
import { recordAttachments } from "../../shared/pass-record/index.ts";
import { BlocksKnown } from "./blocks-known.ts";
import type { CoildKit, Common } from "./common.ts";
import { ExtraSources } from "./extra-sources.ts";
import { GuardKeeper } from "./guard-keeper.ts";
import { readThisHost } from "./host-identity.ts";
import { rememberKernel } from "./keep-kernel.ts";
import { OwnNode } from "./own-node.ts";
import { PodNotes } from "./pod-notes.ts";
import { SetUpProbe } from "./set-up-probe.ts";

/** Each is marked when its loop must run. */
interface Marks {
  readonly routes: Dirty;
  readonly kernel: Dirty;
  readonly forward: Dirty;
  readonly served: Dirty;
}

/** State of a coild with address management, which its parts share. */
export interface CoildNode extends Common {
  readonly network: PodNetwork;
  readonly ipam: NodeIpam;
  readonly ownNode: OwnNode;
  readonly notes: PodNotes;
  readonly guardKeeper: GuardKeeper | undefined;
  readonly extraSources: ExtraSources | undefined;
  readonly clients: EgressClients | undefined;
  readonly setUp: SetUpProbe;
  readonly blocks: BlocksKnown;
  readonly routes: RouteSync;
  /** The routes that announce this node's blocks. */
  readonly exported: () => ReturnType<typeof exportRoutes>;
  readonly marks: Marks;
}

/** {@link CoildNode} with the service of CNI calls. */
export interface ServingNode extends CoildNode {
  readonly service: CniService;
}

/** Reads attachments from the kernel, sets the node up, and guards the links that there are. */
export function openNode(kit: CoildKit, common: Common): CoildNode {
  const { values, health, metrics, log, use } = kit;
  const { kernel, own, guard } = common;
  const stack = use(kernel.openStack(own));
  const network = openNetwork(kit, common, stack);
  const halfMade = network.removeHalfMade();
  const marks: Marks = { routes: new Dirty(), kernel: new Dirty(), forward: new Dirty(), served: new Dirty() };
  const { ownNode, ipam } = openAddresses(kit, common, network, marks);
  const notes = new PodNotes();
  const guardKeeper = keeperOf(kit, common, network, notes);
  if (guard !== undefined) metrics.observeGuard(guard);
  const survey = rememberKernel({ network, ipam }, values);
  // Before the first ADD: its link is guarded from the first packet.
  guardKeeper?.keep(survey, () => undefined);
  log.info("attachments of pods were read from the kernel", {
    attachments: survey.attached.length,
    strays: survey.unowned.length,
    halfMade,
  });
  const place = { table: values.exportTableId, protocol: values.protocolId };
  const routes = new RouteSync(stack, place);
  const setUp = new SetUpProbe({ kernel, health: health.part("set-up", { needed: "always" }) });
  const extraSources = guard === undefined ? undefined : followSources(kit, common, network, marks.kernel);
  const clients = common.openClients(() => network.places());
  const exported = () => exportedRoutes(stack, ipam, place);
  const rest = { setUp, blocks: new BlocksKnown(), routes, exported, marks };
  return { ...common, network, ipam, ownNode, notes, guardKeeper, extraSources, clients, ...rest };
}

function openNetwork(kit: CoildKit, { kernel, guard, recording }: Common, stack: NetStack): PodNetwork {
  const { values, environment: nodeName, log, use } = kit;
  const formerSettings = formerSettingsPath(values.socket);
  const network = use(
    new PodNetwork(
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
    ),
  );
  recordFormerSettings(formerSettings, stack.sysctl, FORWARDING_KEYS);
  network.initHost();
  return network;
}

function openAddresses(
  kit: CoildKit,
  { events }: Common,
  network: PodNetwork,
  marks: Marks,
): Pick<CoildNode, "ownNode" | "ipam"> {
  const { values, environment: nodeName, api, health, metrics, log } = kit;
  const ownNode: OwnNode = new OwnNode(
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
  const ipam = new NodeIpam(
    {
      source: new KubeBlockSource({ api, log: log.child("blocks") }, { nodeName }),
      log: log.child("ipam"),
      clock: systemClock,
      onBlocksChanged: () => {
        for (const dirty of [marks.routes, marks.kernel, marks.forward]) dirty.mark("blocks");
      },
      mayRelease: () => ownNode.isSettled,
      onBlockWait: metrics.onBlockWait,
    },
    { collectIntervalMs: values.gcInterval, releaseDelayMs: values.blockReleaseDelay },
  );
  return { ownNode, ipam };
}

function keeperOf(
  { health, metrics, log }: CoildKit,
  { guard }: Common,
  network: PodNetwork,
  notes: PodNotes,
): GuardKeeper | undefined {
  if (guard === undefined) return undefined;
  const part = health.part("source-guard");
  const onRepaired = metrics.onGuardRepaired;
  return new GuardKeeper(
    { guard, network, notes, health: part, onRepaired, log: log.child("source-guard") },
    guard.mode,
  );
}

/** The sources that pods may use besides their addresses, which follow the annotations of their Namespaces. */
function followSources(
  { log }: CoildKit,
  { namespaces, events }: Common,
  network: PodNetwork,
  dirty: Dirty,
): ExtraSources {
  const extraSources = new ExtraSources({
    network,
    namespace: (name) => namespaces.store.get(name),
    events,
    onChange: () => dirty.mark("extra sources"),
    log: log.child("source-guard"),
    clock: systemClock,
  });
  namespaces.addHandler({
    onAdd: ({ metadata }) => extraSources.noteNamespace(metadata.name),
    onUpdate: (before, { metadata }) => {
      const [old, now] = [before.metadata, metadata].map(({ annotations }) => annotations?.[ALLOWED_SOURCES]);
      if (old !== now) extraSources.noteNamespace(metadata.name);
    },
  });
  return extraSources;
}

/** The routes by which a routing daemon announces this node's blocks. They lead to the loopback interface, which must be up. */
function exportedRoutes(
  stack: NetStack,
  ipam: NodeIpam,
  place: { readonly table: number; readonly protocol: number },
): ReturnType<typeof exportRoutes> {
  const loopback = stack.links.get({ name: "lo" });
  if (loopback !== undefined && !loopback.up) stack.links.set(loopback.index, { up: true });
  return exportRoutes(ipam.prefixes, loopback?.index ?? 1, place);
}
