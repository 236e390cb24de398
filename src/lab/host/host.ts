import { mkdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import { Deferred, poll, TaskGroup, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { openKernel } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { unpackImage } from "#lab/image";
import { execChain, execCni, Heartbeat, Kubelet } from "#lab/kubelet";
import type { MechanismDriver, NeutronBed } from "#lab/neutron";
import {
  type BlockController,
  createOwn,
  guestIdentity,
  hostIdentity,
  isForLab,
  type LabIdentity,
  newRun,
} from "#lab/ownership";
import {
  buildTopology,
  closeControlPlane,
  type LabNode,
  type NodeFamilies,
  planTopology,
  podNetnsPrefix,
  removeTopology,
  type Topology,
} from "#lab/topology";
import { runWorkloads } from "#lab/workloads";
import { openApiRelay, untilTunnelReady } from "./api-relay.ts";
import { chainOf, type LabChained, planChained, routeRanges } from "./chained.ts";
import { prepareCluster } from "./cluster.ts";
import { type ControlPlane, openControlPlane } from "./control-plane.ts";
import { makeRouterRights, planLabEgress } from "./egress.ts";
import { LabError } from "./errors.ts";
import { enterCluster, leaveCluster } from "./guest.ts";
import { serveKubelet } from "./kubelets.ts";
import { type LabPaths, labPaths } from "./lab-paths.ts";
import {
  type LabProgram,
  programsOf,
  serviceProgramsOf,
  tunnelProgramsOf,
  uplinkProgramsOf,
  vpcProgramsOf,
} from "./programs.ts";
import { keepRouterRoutes } from "./router-routes.ts";
import { planLabServices } from "./services.ts";
import { type NotReady, Starting } from "./starting.ts";
import { type LabState, readState, removeState, startTimeOf, writeState } from "./state.ts";
import { Supervisor } from "./supervisor.ts";
import { type LabTunnel, planTunnel, writeTunnelFiles } from "./tunnel.ts";
import {
  type BuildName,
  cniFolders,
  installOn,
  type LabBuild,
  openBuildBefore,
  ownBuild,
  placeOf,
  planUpgrade,
  type SwitchRequest,
} from "./upgrade.ts";
import { type LabUplinks, openInternet, planLabUplinks } from "./uplinks.ts";
import { type LabVpc, openVpc, vpcHosts, vpcPlugin, vpcPrograms, vpcSocket } from "./vpc.ts";

/** The time that a replaced `coild` may take until it serves, in milliseconds. */
const SWITCHED_MS = 60_000;

export interface HostOptions {
  readonly lab: string;
  readonly nodes: number;
  readonly families: NodeFamilies;
  /** Kubeconfig of an external API server. Without it the embedded API server is started. */
  readonly kubeconfig: string | undefined;
  /** Puts the control plane behind a firewall, with the tunnel as the only way in both directions. */
  readonly tunnel: boolean;
  /** Gives the first node two uplinks to a simulated internet, and `uplink-proxy`. */
  readonly uplinks: boolean;
  /** Runs `service-proxy` on every node. */
  readonly services: boolean;
  /** Joins a network outside, and runs `coil-egress-controller` and `service-proxy`. */
  readonly egress: boolean;
  /** Makes `ptp` of Debian the pods' plugin, with `coil` behind it. */
  readonly chained: boolean;
  /** An archive of the image from which the programs run; the build's without it. */
  readonly image: string | undefined;
  /** Runs Neutron, `nic-controller`, and on the first two nodes `nic-agent`. */
  readonly vpc: boolean;
  /** The program that sets up the switches of {@link HostOptions.vpc}. */
  readonly vpcDriver: MechanismDriver;
  /** The build of another release (a folder, or an archive of the image), with which the lab begins; its places are switched on request. */
  readonly upgrade: string | undefined;
  /** Command line of `isthmus`, to which the name of a program is added. */
  readonly isthmus: readonly string[];
  readonly cniExecutable: string;
  /** Further flags for `coild`. */
  readonly coildFlags: readonly string[];
  /** The time that the programs of a new lab may take until all nodes are ready, in milliseconds. */
  readonly startMs: number;
}

/** Events that the host process reports to its front end, one line each. */
export type HostEvent =
  | { readonly event: "step"; readonly text: string }
  | { readonly event: "ready" }
  /** The programs of a place run from another build now. */
  | ({ readonly event: "switched" } & SwitchRequest)
  | { readonly event: "failed"; readonly message: string };

/** The parts that a host process gets from its program. */
export interface HostDeps {
  readonly log: Logger;
  readonly tell: (event: HostEvent) => void;
  /** Requests of a front end with `--upgrade`, in their order. */
  readonly switches: AsyncIterable<SwitchRequest>;
}

/**
 * Builds a lab and keeps it running until the signal aborts, then removes the lab. If the lab cannot be built, removes its parts and
 * rejects.
 */
export async function runHost(
  deps: HostDeps,
  options: HostOptions,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { tell } = deps;
  const paths = labPaths(options.lab);
  try {
    if (options.upgrade !== undefined) {
      const after = await ownBuild(options, { signal });
      const before = await openBuildBefore(options.upgrade, after, { paths, signal });
      return await runCluster(deps, { ...options, ...before }, { paths, builds: { before, after } }, signal);
    }
    if (options.image === undefined) return await runCluster(deps, options, { paths }, signal);
    tell({ event: "step", text: `unpacking ${options.image}` });
    const { digest, ...programs } = await unpackImage(options.image, paths.image);
    await runCluster(deps, { ...options, ...programs }, { paths, image: digest }, signal);
  } finally {
    // With a state its owner removes the folder, after the programs.
    if (readState(options.lab) === undefined) rmSync(paths.disk, { recursive: true, force: true });
  }
}

async function runCluster(
  deps: HostDeps,
  options: HostOptions,
  {
    paths,
    image,
    builds,
  }: {
    readonly paths: LabPaths;
    readonly image?: string | undefined;
    readonly builds?: Readonly<Record<BuildName, LabBuild>> | undefined;
  },
  signal: AbortSignal,
): Promise<void> {
  const { log, tell } = deps;
  const kernel = openKernel();
  const identity = identityOf(options);
  const hasUplinks = options.uplinks || builds !== undefined;
  const topology = planTopology({ ...options, uplinks: hasUplinks, nodePrefix: identity.prefix });
  const upgrade = builds === undefined ? undefined : planUpgrade(topology, builds, paths);
  const tunnel = planTunnel(topology, paths);
  const uplinks = planLabUplinks(topology, paths);
  const chained = options.chained ? planChained(topology) : undefined;
  mkdirSync(paths.logs, { recursive: true, mode: 0o700 });
  for (const node of topology.nodes) mkdirSync(dirname(paths.socketOf(node.name)), { recursive: true, mode: 0o700 });
  const recorder = stateRecorder(options.lab, topology, {
    identity,
    tunnel,
    uplinks,
    chained,
    services: planLabServices(topology, options),
    egress: planLabEgress(topology, { paths, isthmus: options.isthmus }),
    image,
    upgrade,
  });
  recorder.write();
  if (builds !== undefined) for (const node of topology.nodes) await installOn(node, builds.before, { paths, signal });
  // If a guest cannot remove its objects now, the next start or `lab down` removes them, and for that they need the folder of the lab.
  let isClean = true;
  try {
    tell({
      event: "step",
      text: `building ${topology.nodes.length} ${topology.nodes.length === 1 ? "node" : "nodes"}`,
    });
    buildTopology(kernel, topology);
    if (chained !== undefined) routeRanges(kernel, topology, chained);
    if (topology.controlPlane !== undefined && tunnel !== undefined) {
      closeControlPlane(topology.controlPlane, tunnel);
      writeTunnelFiles(tunnel, paths);
    }
    if (upgrade !== undefined) writeTunnelFiles(upgrade.tunnel, paths);
    await using _internet = await openInternet(topology, paths);
    const { kubeconfig } = options;
    await using controlPlane = await openControlPlane({ log }, { topology, paths, kubeconfig, tunnel });
    const say = (text: string): void => tell({ event: "step", text });
    say(controlPlane.description);
    if (options.vpc) say("starting Neutron with its database, its broker and an agent on two nodes");
    const opened = options.vpc
      ? await openVpc(kernel, { topology, paths, driver: options.vpcDriver }, { signal })
      : undefined;
    await using neutron = opened?.bed;
    if (opened !== undefined) recorder.vpc(opened.vpc);
    await using api = new KubeClient(await loadKubeConfig({ path: paths.kubeconfig, clock: systemClock }), {
      userAgent: "isthmus-lab",
      clock: systemClock,
    });
    const run = async (): Promise<void> => {
      const blocks = identity.isGuest ? await enterCluster(api, identity, { say, signal }) : "own";
      isClean = !identity.isGuest;
      recorder.entered();
      await prepareCluster(
        api,
        { topology, identity, blocks, vpc: options.vpc, crds: builds?.before.crds },
        { signal },
      );
      if (options.egress) await makeRouterRights(api, identity, { signal });
      const parts = {
        log,
        tell,
        api,
        controlPlane,
        recorder,
        kernel,
        paths,
        identity,
        blocks,
        tunnel,
        uplinks,
        chained,
        neutron,
        builds,
        spareTunnel: upgrade?.tunnel,
        switches: deps.switches,
      };
      await hold(parts, options, topology, signal);
    };
    await finallyDo(run, async () => {
      if (isClean) return;
      await removeTopology(kernel, options.lab);
      // The removal does not get the signal, because the signal has aborted and the objects must still be removed.
      await leaveCluster(api, identity, { say });
      isClean = true;
    });
  } finally {
    await removeTopology(kernel, options.lab);
    if (isClean) removeState(options.lab);
  }
}

/** Runs `second` after `first`, also if `first` fails. Reports both failures. */
async function finallyDo(first: () => Promise<void>, second: () => Promise<void>): Promise<void> {
  const ends = [await settled(first), await settled(second)].filter((end) => end !== undefined);
  if (ends.length > 1) {
    const [one, two] = ends.map(({ error }) => error);
    if (one instanceof ExpectedError && two instanceof ExpectedError)
      throw new LabError("start-failed", `${describeError(one)}; after that: ${describeError(two)}`, { cause: one });
    throw new AggregateError([one, two]);
  }
  if (ends[0] !== undefined) throw ends[0].error;
}

async function settled(work: () => Promise<void>): Promise<{ readonly error: unknown } | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return { error };
  }
}

/** Names of a guest are unique; names on the lab's own API server are short. */
function identityOf({ lab, kubeconfig }: Pick<HostOptions, "lab" | "kubeconfig">): LabIdentity {
  const run = newRun();
  return kubeconfig === undefined ? hostIdentity(lab, run) : guestIdentity(lab, run);
}

interface Parts {
  readonly log: Logger;
  readonly tell: (event: HostEvent) => void;
  readonly api: KubeClient;
  readonly controlPlane: ControlPlane;
  readonly recorder: StateRecorder;
  readonly kernel: ReturnType<typeof openKernel>;
  readonly paths: LabPaths;
  readonly identity: LabIdentity;
  /** The controller that carves blocks: the lab's own or the cluster's. */
  readonly blocks: BlockController;
  readonly tunnel: LabTunnel | undefined;
  readonly uplinks: LabUplinks | undefined;
  readonly chained: LabChained | undefined;
  readonly neutron: NeutronBed | undefined;
  /** Both builds of a lab with `--upgrade`. */
  readonly builds: Readonly<Record<BuildName, LabBuild>> | undefined;
  /** Present with both builds. Its programs are switched as all others. */
  readonly spareTunnel: LabTunnel | undefined;
  readonly switches: AsyncIterable<SwitchRequest>;
}

async function hold(parts: Parts, options: HostOptions, topology: Topology, signal: AbortSignal): Promise<void> {
  const { log, tell, api, recorder, paths, tunnel, uplinks } = parts;
  const starting = new Starting(paths);
  const supervisor: Supervisor = new Supervisor({
    log: log.child("programs"),
    onChange: () => recorder.children(supervisor.children),
    onEnd: (end) => starting.ended(end),
  });
  const group = new TaskGroup(signal);
  const running = new RunningPrograms(supervisor, group);
  const programsBy = (isthmus: readonly string[]): readonly LabProgram[] => [
    ...programsOf({
      topology,
      paths,
      isthmus,
      coildFlags: options.coildFlags,
      chained: parts.chained !== undefined,
      controller: parts.blocks === "own",
      egress: options.egress,
    }),
    ...uplinkProgramsOf({ paths, isthmus, uplinks }),
    ...(parts.spareTunnel === undefined
      ? []
      : tunnelProgramsOf({ topology, paths, isthmus, tunnel: parts.spareTunnel })),
    ...(options.services || options.egress ? serviceProgramsOf({ topology, paths, isthmus }) : []),
    ...(parts.neutron === undefined
      ? []
      : vpcProgramsOf({ paths, isthmus, programs: vpcPrograms(topology, paths, parts.neutron) })),
  ];
  const programs = programsBy(options.isthmus);
  group.spawn(async (at) => {
    if (tunnel !== undefined) {
      // Programs of a node reach the API server only through that node's agent.
      tell({ event: "step", text: `opening the tunnel with ${topology.nodes.length} agents` });
      running.start(tunnelProgramsOf({ topology, paths, isthmus: options.isthmus, tunnel }));
      await Promise.all(topology.nodes.map((node) => untilTunnelReady(node, tunnel, { signal: at })));
    }
    tell({ event: "step", text: `starting ${programs.length} programs` });
    running.start(programs);
  });
  const { builds } = parts;
  if (builds !== undefined)
    group.spawn(async (at) => {
      for await (const { place, build } of untilEnd(parts.switches, at)) {
        const node = topology.nodes.find(({ name }) => name === place);
        // As the DaemonSet of coild: the init container installs, then the program is replaced.
        if (node !== undefined) await installOn(node, builds[build], { paths, signal: at });
        await running.replace(programsBy(builds[build].isthmus).filter((one) => placeOf(topology, one) === place));
        if (node !== undefined && !(await untilServed(paths.socketOf(node.name), at, SWITCHED_MS)))
          throw new LabError(
            "not-reached",
            `coild ${builds[build].version} of ${place} does not serve after ${SWITCHED_MS / 1000} s: see ${paths.logOf(`coild-${place}`)}`,
          );
        tell({ event: "switched", place, build });
      }
    });
  if (parts.controlPlane.embedded)
    group.spawn((at) => runWorkloads({ api, log: log.child("workloads"), clock: systemClock }, { signal: at }));
  if (options.egress)
    group.spawn((at) =>
      keepRouterRoutes({ api, kernel: parts.kernel, log, clock: systemClock }, topology, { signal: at }),
    );
  // If pods were scheduled before all nodes are ready, all pods would be on the first node.
  const unready = new Set(topology.nodes.map(({ name }) => name));
  const allReady = new Deferred();
  for (const node of topology.nodes) {
    const onReady = (): void => {
      unready.delete(node.name);
      if (unready.size === 0) allReady.resolve();
    };
    group.spawn((at) => runNode(parts, { options, topology }, node, { signal: at, onReady }));
  }
  group.spawn(async (at) => {
    await starting.untilReady(allReady.promise, () => lateNodes([...unready], supervisor.children), {
      signal: at,
      deadlineMs: options.startMs,
      clock: systemClock,
    });
    recorder.ready();
    tell({ event: "ready" });
  });
  await group.wait();
}

/** Nodes that are late, and the program of the first one that the others wait for. */
function lateNodes(nodes: readonly string[], children: LabState["children"]): NotReady {
  const started = new Set(children.map(({ name }) => name));
  const program = [`coild-${nodes[0]}`, `proxy-agent-${nodes[0]}`].find((name) => started.has(name));
  const shown = nodes.length > 3 ? [...nodes.slice(0, 3), `${nodes.length - 3} more`] : nodes;
  return { text: `${shown.join(", ")} ${nodes.length === 1 ? "is" : "are"} not ready`, program };
}

/** The programs that a supervisor keeps running, each until it is replaced. */
class RunningPrograms {
  readonly #supervisor: Supervisor;
  readonly #group: TaskGroup;
  readonly #stops = new Map<string, () => Promise<void>>();

  constructor(supervisor: Supervisor, group: TaskGroup) {
    this.#supervisor = supervisor;
    this.#group = group;
  }

  start(programs: readonly LabProgram[]): void {
    for (const { netns: name, ...program } of programs) {
      const own = new AbortController();
      const ended = new Deferred();
      this.#group.spawn(async (at) => {
        try {
          using netns = openNetNs({ name });
          await this.#supervisor.run({ ...program, netns }, { signal: AbortSignal.any([at, own.signal]) });
        } finally {
          ended.resolve();
        }
      });
      this.#stops.set(program.name, async () => {
        own.abort();
        await ended.promise;
      });
    }
  }

  /** Ends the programs of these names by SIGTERM, waits for their end, and starts these. */
  async replace(programs: readonly LabProgram[]): Promise<void> {
    await Promise.all(programs.map(({ name }) => this.#stops.get(name)?.()));
    this.start(programs);
  }
}

/** The items until the signal aborts. */
async function* untilEnd<T>(items: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]();
  const aborted = untilAborted(signal);
  for (;;) {
    const next = await Promise.race([iterator.next(), aborted]);
    if (next === undefined || next.done === true) return;
    yield next.value;
  }
}

/** Runs the kubelet of a node. It starts when `coild` listens. */
async function runNode(
  parts: Parts,
  { options, topology }: { readonly options: HostOptions; readonly topology: Topology },
  node: LabNode,
  { signal, onReady }: { readonly signal: AbortSignal; readonly onReady: () => void },
): Promise<void> {
  const { kernel, paths, tunnel, identity } = parts;
  const log = parts.log.child(node.name);
  using netns = openNetNs({ name: node.netns });
  await untilServed(paths.socketOf(node.name), signal);
  const hasVpc = options.vpc && vpcHosts(topology).some(({ name }) => name === node.name);
  if (hasVpc) await untilServed(vpcSocket(paths, node.name), signal);
  await using relay = tunnel === undefined ? undefined : await openRelayOf(parts, node, tunnel);
  await using own =
    relay === undefined
      ? undefined
      : new KubeClient(relay.connection, { userAgent: "isthmus-lab-kubelet", clock: systemClock });
  const api = own ?? parts.api;
  const heartbeat = new Heartbeat(
    { api, createLease: (draft, at) => createOwn(api, identity, resources.leases, draft, at), log, clock: systemClock },
    { node: node.name },
  );
  await heartbeat.ready({ signal });
  onReady();
  const socket = paths.socketOf(node.name);
  const config = { cniVersion: "1.1.0", name: "k8s-pod-network", type: "coil", socket };
  const cni =
    parts.chained === undefined
      ? execCni(
          netns,
          hasVpc
            ? vpcPlugin(node, { paths, coil: options.cniExecutable, delegate: config })
            : {
                executable:
                  parts.builds === undefined ? options.cniExecutable : join(cniFolders(paths, node).bin, "coil"),
                config,
              },
        )
      : execChain(
          netns,
          chainOf(parts.chained, node, { coil: options.cniExecutable, socket, dataDir: join(dirname(socket), "ipam") }),
        );
  const kubelet = new Kubelet(
    { api, kernel, cni, log, clock: systemClock },
    {
      nodeName: node.name,
      nodeAddresses: node.addresses.map(String),
      netnsPrefix: podNetnsPrefix(options.lab),
      accepts: (pod) => isForLab(identity, pod),
    },
  );
  const { kubelets } = parts.controlPlane;
  await using _commands = kubelets === undefined ? undefined : await serveKubelet(kubelet, node, kubelets, { log });
  await Promise.all([kubelet.run({ signal }), heartbeat.run({ signal })]);
}

async function openRelayOf({ paths }: Parts, node: LabNode, tunnel: LabTunnel): ReturnType<typeof openApiRelay> {
  return openApiRelay(node, tunnel, await loadKubeConfig({ path: paths.nodeKubeconfig, clock: systemClock }));
}

/** Waits until a process listens on a UNIX socket. False if none does after `deadlineMs`; default: no limit. */
async function untilServed(path: string, signal: AbortSignal, deadlineMs?: number): Promise<boolean> {
  const answers = (): Promise<boolean> =>
    new Promise((resolve) => {
      const probe = connect(path);
      probe.once("connect", () => {
        probe.destroy();
        resolve(true);
      });
      probe.once("error", () => resolve(false));
    });
  const limit = deadlineMs === undefined ? {} : { deadlineMs };
  return poll(answers, { until: (served) => served, everyMs: 20, ...limit, signal, clock: systemClock });
}

interface StateRecorder {
  write(): void;
  /** From now on the cluster may have objects of the lab. */
  entered(): void;
  children(children: LabState["children"]): void;
  vpc(vpc: LabVpc): void;
  ready(): void;
}

function stateRecorder(
  lab: string,
  topology: Topology,
  parts: Pick<LabState, "identity" | "tunnel" | "uplinks" | "services" | "egress" | "chained" | "image" | "upgrade">,
): StateRecorder {
  let state: LabState = {
    lab,
    pid: process.pid,
    startTime: startTimeOf(process.pid) ?? "",
    nodes: topology.nodes.map(({ name, netns, addresses }) => ({ name, netns, addresses: addresses.map(String) })),
    families: topology.families,
    isOnCluster: false,
    children: [],
    ready: false,
    ...parts,
  };
  const write = (): void => writeState(state);
  return {
    write,
    entered: () => {
      state = { ...state, isOnCluster: true };
      write();
    },
    children: (children) => {
      state = { ...state, children };
      write();
    },
    vpc: (vpc) => {
      state = { ...state, vpc };
      write();
    },
    ready: () => {
      state = { ...state, ready: true };
      write();
    },
  };
}
