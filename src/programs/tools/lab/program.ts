import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import type { FlagValues } from "#base/config";
import { ConfigError, choiceFlag, durationFlag, integerFlag, optionalFlag, stringFlag, switchFlag } from "#base/config";
import { describeError, ExpectedError } from "#base/errors";
import { inspectNodes } from "#features/cni";
import { openKernel } from "#kernel/net";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import {
  isRunning,
  joinNetns,
  LabError,
  type LabState,
  labPaths,
  leaveCluster,
  lockLab,
  readState,
  removeDeadRuns,
  removeState,
} from "#lab/host";
import { NETNS_ANNOTATION } from "#lab/kubelet";
import {
  applyScenario,
  type ChainedNode,
  type ChainedReport,
  chainedWorks,
  defaultScenario,
  egressWorks,
  type LabReport,
  type ObservedCluster,
  observeCluster,
  reachesAll,
  renderReport,
  servicesWork,
  type TunnelReport,
  tunnelWorks,
  upgradeWorks,
  uplinksWork,
  verifyChained,
  verifyCluster,
  verifyEgress,
  verifyServices,
  verifyTunnel,
  verifyUpgrade,
  verifyUplinks,
  verifyVpc,
  vpcWorks,
  waitForPods,
} from "#lab/scenario";
import { LAB_NAME_PATTERN, removeTopology } from "#lab/topology";
import { cniExecutable, type LabHost, startHost, stopHost } from "../../shared/lab-front/index.ts";
import { defineProgram, EXIT, LAB_CAPABILITIES, requirePrivileges } from "../../shared/program/index.ts";
import { auditWhole, type WholeAudit } from "../../shared/whole-audit/index.ts";

const flags = {
  name: stringFlag("name", "lab", "name of the lab; several labs can run at the same time", "NAME"),
  nodes: integerFlag("nodes", 3, "number of nodes", { min: 1, max: 200 }),
  pods: integerFlag("pods", 12, "number of pods on all nodes together", { min: 0, max: 5000 }),
  families: choiceFlag("families", ["dual", "ipv4", "ipv6"], "dual", "address families of nodes and pods"),
  keep: switchFlag("keep", false, "keep the lab running; `isthmus lab down` removes it"),
  json: switchFlag("json", false, "print the report as one JSON object"),
  timeout: durationFlag(
    "timeout",
    "2m",
    "how long pods may take to start, and before them nodes, which have a minute at least",
  ),
  tunnel: switchFlag(
    "tunnel",
    false,
    "the control plane is behind a firewall: nodes and control plane reach each other only through proxy-server and proxy-agents",
  ),
  uplinks: switchFlag(
    "uplinks",
    false,
    "node1 has a cheap and an expensive uplink to a simulated internet, and runs uplink-proxy; the cheap uplink is broken in three ways",
  ),
  services: switchFlag(
    "services",
    false,
    "run service-proxy on every node; Services are tested, and a node is drained under load behind load balancers with health probes",
  ),
  egress: switchFlag(
    "egress",
    false,
    "two Egresses with clients, and a network outside that knows only their routers; a router loses its power and another one is drained under load",
  ),
  chained: switchFlag(
    "chained",
    false,
    "Debian's ptp and host-local make the pods' interfaces, with coil chained behind them (coild --enable-ipam=false)",
  ),
  image: optionalFlag(
    "image",
    "run every program from this archive of the image (`./run image`) instead of the build",
    "FILE",
  ),
  upgrade: optionalFlag(
    "upgrade",
    "begin with the programs of another release (a built checkout, or an archive of its image), and upgrade the lab to this build and back, under load",
    "PATH",
  ),
  vpc: switchFlag(
    "vpc",
    false,
    "run Neutron with agents on two nodes, and give pods NICs that are its ports, with security groups and a port of a user",
  ),
  vpcDriver: choiceFlag(
    "vpc-driver",
    ["openvswitch", "ovn"],
    "openvswitch",
    "who programs the switches of --vpc: Neutron's own agents, one with each firewall driver, or OVN",
  ),
  kubeconfig: optionalFlag(
    "kubeconfig",
    "use this API server instead of the embedded one; with `down`: remove the objects of a lab from it when the lab's local files are lost",
    "FILE",
  ),
};
type Values = FlagValues<typeof flags>;

/**
 * Differences that an audit finds count as findings only if they last this long, in milliseconds: until then an operation may be in
 * progress.
 */
const SETTLE_MS = 5000;

/** `isthmus lab`: a cluster on one machine. */
export const lab = defineProgram({
  name: "lab",
  summary:
    "Builds a Kubernetes cluster on this machine with real kernel objects, and reports which pods and nodes reach each other.",
  words: { usage: "[kubeconfig | exec POD -- COMMAND... | down | check]", max: Number.POSITIVE_INFINITY },
  flags,
  notes: [
    [
      "Without a command: builds the lab, runs the default scenario, reports and removes the lab (unless --keep).",
      "  kubeconfig            print the kubeconfig of a running lab",
      "  exec POD -- COMMAND   run a command in the network namespace of a pod ([NAMESPACE/]NAME) or a node",
      "  down                  remove a lab and all its objects",
      "  check                 check the flags of a new lab, and start nothing",
    ].join("\n"),
    "The embedded API server is in memory and for labs only. Exit code: 0 when every check succeeded.",
    "On an existing API server (--kubeconfig) a lab creates only objects with its own names and labels. It refuses to start if it would have to change other objects. It removes its objects when it ends, after a failure too.",
  ],
  run: async ({ values, words, signal }) => {
    const [word, ...rest] = words;
    if (!LAB_NAME_PATTERN.test(values.name)) {
      throw new ConfigError("invalid-flags", [
        `--name: "${values.name}" is not a lab name: at most 16 lower-case letters, digits and hyphens`,
      ]);
    }
    if (values.services && values.nodes < 2)
      throw new ConfigError("invalid-flags", [
        "--services: the scenario drains one node, so --nodes must be 2 or more",
      ]);
    const others = (["tunnel", "uplinks", "services", "egress"] as const).filter((name) => values[name]);
    if (values.chained && (others.length > 0 || values.kubeconfig !== undefined)) {
      const names = [...others, ...(values.kubeconfig === undefined ? [] : ["kubeconfig"])].map((name) => `--${name}`);
      throw new ConfigError("invalid-flags", [`--chained: this flag cannot be combined with ${names.join(", ")}`]);
    }
    refuseWithEgress(values);
    refuseWithVpc(values);
    refuseWithUpgrade(values);
    if (word === undefined) {
      refuseWithoutPlugin(values);
      return runLab(values, signal);
    }
    if (word === "check" && rest.length === 0) return EXIT.ok;
    if (word === "kubeconfig" && rest.length === 0) return printKubeconfig(values.name);
    if (word === "down" && rest.length === 0) return down(values, signal);
    if (word === "exec" && rest.length >= 2) return exec(values.name, rest[0] ?? "", rest.slice(1), signal);
    throw new ConfigError("invalid-flags", [
      word === "exec"
        ? "exec needs a pod and a command: isthmus lab exec POD -- COMMAND"
        : `unexpected "${words.join(" ")}"`,
    ]);
  },
});

/** A cluster of somebody else has its own controller and rights of Egresses; routers are pods, which the tunnel's firewall keeps from the API server. */
function refuseWithEgress(values: Values): void {
  if (!values.egress) return;
  const names = (["tunnel", "uplinks", "kubeconfig"] as const).filter(
    (name) => values[name] !== undefined && values[name] !== false,
  );
  if (names.length > 0)
    throw new ConfigError("invalid-flags", [
      `--egress: this flag cannot be combined with ${names.map((name) => `--${name}`).join(", ")}`,
    ]);
}

/** Neutron runs on nodes of the lab's own API server that reach it; other labs have other nodes, or the ports of its processes. */
function refuseWithVpc(values: Values): void {
  if (!values.vpc) {
    if (values.vpcDriver !== flags.vpcDriver.initial)
      throw new ConfigError("invalid-flags", ["--vpc-driver: this flag has a meaning with --vpc alone; add --vpc"]);
    return;
  }
  const names = (["tunnel", "uplinks", "services", "egress", "chained", "kubeconfig"] as const).filter(
    (name) => values[name] !== undefined && values[name] !== false,
  );
  if (names.length > 0)
    throw new ConfigError("invalid-flags", [
      `--vpc: this flag cannot be combined with ${names.map((name) => `--${name}`).join(", ")}`,
    ]);
  if (values.nodes < 2 || values.families === "ipv6")
    throw new ConfigError("invalid-flags", ["--vpc: the lab needs two nodes or more, with IPv4"]);
  const plugin = join(cniExecutable(), "../vpc-neutron");
  if (values.image === undefined && !existsSync(plugin))
    throw new ConfigError("invalid-flags", [
      `--vpc: there is no ${plugin}: use a checkout, the image, or the Debian package isthmus-cni`,
    ]);
}

/** The packages for hosts without pods do not have it. */
function refuseWithoutPlugin({ image }: Values): void {
  if (image !== undefined || existsSync(cniExecutable())) return;
  throw new ConfigError("invalid-flags", [
    `there is no ${cniExecutable()}: use a checkout, the image, or the Debian package isthmus-cni`,
  ]);
}

/** The builds of an upgrade run the lab's own API server, Services, one Egress, a tunnel beside the direct way, and the proxy of uplinks that stay whole. */
function refuseWithUpgrade(values: Values): void {
  if (values.upgrade === undefined) return;
  const names = (["tunnel", "uplinks", "services", "egress", "chained", "image", "vpc", "kubeconfig"] as const).filter(
    (name) => values[name] !== undefined && values[name] !== false,
  );
  if (names.length > 0)
    throw new ConfigError("invalid-flags", [
      `--upgrade: this flag cannot be combined with ${names.map((name) => `--${name}`).join(", ")}`,
    ]);
  if (values.nodes < 2 || values.pods < 2 * values.nodes)
    throw new ConfigError("invalid-flags", ["--upgrade: the lab needs two nodes or more, and two pods for each node"]);
}

async function runLab(values: Values, signal: AbortSignal): Promise<number> {
  const startedMs = performance.now();
  requirePrivileges("make network namespaces", LAB_CAPABILITIES);
  // The host process reads the kubeconfig again. This first reading reports a fault before anything is built.
  if (values.kubeconfig !== undefined) await loadKubeConfig({ path: values.kubeconfig, clock: systemClock });
  const say = (text: string): void => void process.stderr.write(`${text}\n`);
  const host = await startAlone(values, { say, signal });
  let kept = false;
  try {
    if (values.kubeconfig === undefined) say("the embedded API server is in memory, for labs and tests only");
    const report = await runScenario(values, { startedMs, say, signal, host });
    process.stdout.write(values.json ? `${JSON.stringify(report)}\n` : renderReport(report));
    if (values.keep) {
      await host.keep();
      kept = true;
      say(`lab ${values.name} keeps running: use isthmus lab kubeconfig, exec and down`);
    }
    return report.ok ? EXIT.ok : EXIT.failed;
  } finally {
    if (!kept) {
      await host.stop();
      // Remove what the host process could not remove in time.
      if (readState(values.name) !== undefined) await removeLeftovers(values.name, { say });
    }
  }
}

/** Starts the host process of the lab under a lock, if no host process of that lab runs. */
async function startAlone(
  values: Values,
  { say, signal }: { readonly say: (text: string) => void; readonly signal: AbortSignal },
): Promise<LabHost> {
  using _lock = lockLab(values.name);
  const known = readState(values.name);
  if (known !== undefined && isRunning(known)) {
    throw new LabError(
      "already-up",
      `lab ${values.name} already runs: remove it with isthmus lab down, or start another with --name`,
    );
  }
  await removeLeftovers(values.name, { say, signal });
  rmSync(labPaths(values.name).failedLog, { force: true });
  const host = await startHost(values, { say, signal });
  try {
    await host.ready;
    return host;
  } catch (error) {
    await host.stop();
    // A host process that was killed has left namespaces and processes.
    try {
      await removeLeftovers(values.name, { say: () => undefined });
    } catch (left) {
      // The reason why the lab did not start is more important than a failure to remove the remaining objects.
      if (!(left instanceof LabError)) throw left;
      say(left.message);
    }
    throw error;
  }
}

async function runScenario(
  values: Values,
  at: {
    readonly startedMs: number;
    readonly say: (text: string) => void;
    readonly signal: AbortSignal;
    readonly host: LabHost;
  },
): Promise<LabReport> {
  const { say, signal } = at;
  const state = requireState(values.name);
  await using api = await openLab(values.name);
  const scenario = defaultScenario(values, state.identity);
  say(`starting ${values.pods} pods in ${scenario.pools.length} pools`);
  await applyScenario(api, scenario, { signal });
  await waitForPods(api, scenario, {
    signal,
    deadlineMs: values.timeout,
    onProgress: throttled((running, wanted) => say(`${running} of ${wanted} pods run`)),
  });
  const cluster = await observeCluster(api, scenario, { signal });
  say("pinging");
  const verified = await verifyCluster(
    api,
    { identity: state.identity, cluster, ranges: state.chained?.ranges },
    { signal, pingDeadlineMs: 10_000, onProgress: () => undefined },
  );
  const tunnel = await checkTunnel(requireState(values.name), cluster, { say, signal });
  // Those of an upgrade stay whole.
  const breakable = state.upgrade === undefined ? state.uplinks : undefined;
  if (breakable !== undefined) say("downloading over the uplinks, and breaking the cheap uplink");
  const uplinks = breakable === undefined ? undefined : await verifyUplinks(breakable, { signal });
  const upgrade =
    state.upgrade === undefined || state.egress === undefined || state.uplinks === undefined
      ? undefined
      : await verifyUpgrade(
          {
            ...{ api, scenario, cluster, say, upgrade: state.upgrade, egress: state.egress, uplinks: state.uplinks },
            state: () => requireState(values.name),
            switchTo: (request) => at.host.switchTo(request),
            audit: async () =>
              (await settledAudit(api, state, signal)).findings.map(
                ({ node, text }) => `${node ?? "cluster"}: ${text}`,
              ),
          },
          { signal },
        );
  const egress =
    state.egress === undefined || upgrade !== undefined
      ? undefined
      : await verifyEgress({ api, state, at: state.egress, say }, { signal });
  const chained = state.chained === undefined ? undefined : await checkChained(api, state, signal);
  const { findings, checked, wantedRoutes } =
    state.chained === undefined ? await settledAudit(api, state, signal) : NO_BLOCKS;
  // Its pods have no addresses of blocks, which the audit would look for.
  const vpc =
    state.vpc === undefined
      ? undefined
      : await verifyVpc({ api, identity: state.identity, at: state.vpc, say }, { signal });
  // This check is the last one, because it drains a node, whose pods then move to other nodes.
  const services =
    state.services === undefined
      ? undefined
      : await verifyServices({ api, state, at: state.services, say }, { signal });
  const report = {
    lab: values.name,
    ...(state.image === undefined ? {} : { image: state.image }),
    ...verified,
    ...(tunnel === undefined ? {} : { tunnel }),
    ...(uplinks === undefined ? {} : { uplinks }),
    ...(services === undefined ? {} : { services }),
    ...(egress === undefined ? {} : { egress }),
    ...(chained === undefined ? {} : { chained }),
    ...(vpc === undefined ? {} : { vpc }),
    ...(upgrade === undefined ? {} : { upgrade }),
    routes: { exported: checked.exportedRoutes, wanted: wantedRoutes },
    audit: { findings, ...(checked.egress === undefined ? {} : { egress: checked.egress }) },
    seconds: Number(((performance.now() - at.startedMs) / 1000).toFixed(2)),
  };
  const ok =
    reachesAll(report) &&
    report.addresses.unique &&
    report.addresses.outsideBlocks.length === 0 &&
    report.routes.exported === report.routes.wanted &&
    findings.length === 0 &&
    (chained === undefined || chainedWorks(chained, report)) &&
    (tunnel === undefined || tunnelWorks(tunnel)) &&
    (uplinks === undefined || uplinksWork(uplinks)) &&
    (services === undefined || servicesWork(services)) &&
    (egress === undefined || egressWorks(egress)) &&
    (vpc === undefined || vpcWorks(vpc)) &&
    (upgrade === undefined || upgradeWorks(upgrade));
  return { ok, ...report };
}

/** Without address management there are no blocks to audit: the links that coil has marked are compared with the pods instead. */
const NO_BLOCKS: Pick<WholeAudit, "findings" | "wantedRoutes"> & {
  readonly checked: Pick<WholeAudit["checked"], "exportedRoutes" | "egress">;
} = { findings: [], checked: { exportedRoutes: 0 }, wantedRoutes: 0 };

async function checkChained(api: KubeClient, state: LabState, signal: AbortSignal): Promise<ChainedReport> {
  const sockets = state.nodes.map((node) => labPaths(state.lab).socketOf(node.name));
  return verifyChained(api, await inspectNodes<ChainedNode>(sockets, { signal }), { signal });
}

/** Tries the tunnel in both directions; `undefined` if the lab has no tunnel. */
async function checkTunnel(
  state: LabState,
  cluster: ObservedCluster,
  { say, signal }: { readonly say: (text: string) => void; readonly signal: AbortSignal },
): Promise<TunnelReport | undefined> {
  const { tunnel } = state;
  if (tunnel === undefined) return undefined;
  say("testing the tunnel");
  const connection = await loadKubeConfig({ path: labPaths(state.lab).nodeKubeconfig, clock: systemClock });
  return verifyTunnel({ state, tunnel, cluster, connection }, { signal });
}

/** The audit of the settled cluster, or its findings at the deadline. */
async function settledAudit(api: KubeClient, state: LabState, signal: AbortSignal): Promise<WholeAudit> {
  const sockets = state.nodes.map((node) => labPaths(state.lab).socketOf(node.name));
  // On a cluster that the lab did not make, only the nodes of the lab are audited.
  const only = state.identity.isGuest ? new Set(state.nodes.map(({ name }) => name)) : undefined;
  const hasEgress = state.egress !== undefined;
  return poll(() => auditWhole(api, sockets, { signal, only, hasEgress }), {
    until: ({ findings }) => findings.length === 0,
    everyMs: 100,
    deadlineMs: SETTLE_MS,
    signal,
    clock: systemClock,
  });
}

function printKubeconfig(name: string): number {
  requireState(name);
  process.stdout.write(readFileSync(labPaths(name).kubeconfig, "utf8"));
  return EXIT.ok;
}

async function down({ name, kubeconfig }: Pick<Values, "name" | "kubeconfig">, signal: AbortSignal): Promise<number> {
  requirePrivileges("make network namespaces", LAB_CAPABILITIES);
  using _lock = lockLab(name);
  const say = (text: string): void => void process.stderr.write(`${text}\n`);
  const state = readState(name);
  const wasUp = state !== undefined && isRunning(state);
  if (wasUp) await stopHost(state);
  const removed = await removeLeftovers(name, { say: () => undefined, signal });
  rmSync(labPaths(name).failedLog, { force: true });
  const runs = kubeconfig === undefined ? 0 : await removeFrom(kubeconfig, name, { say, signal });
  const nothing = !wasUp && removed === 0 && runs === 0;
  process.stderr.write(nothing ? `there is no lab ${name}\n` : `lab ${name} removed\n`);
  return EXIT.ok;
}

async function exec(name: string, target: string, argv: readonly string[], signal: AbortSignal): Promise<number> {
  requirePrivileges("make network namespaces", LAB_CAPABILITIES);
  const state = requireState(name);
  // On a cluster that the lab did not make, nodes have a prefix in their names; names without the prefix are accepted too.
  const node = state.nodes.find((one) => [target, `${state.identity.prefix}${target}`].includes(one.name));
  if (node !== undefined) return joinNetns(`/run/netns/${node.netns}`, argv, signal);
  await using api = await openLab(name);
  const { items } = await api.listAll(resources.pods, { signal });
  const pod = items.find(
    ({ metadata }) => `${metadata.namespace}/${metadata.name}` === target || metadata.name === target,
  );
  const netns = pod?.metadata.annotations?.[NETNS_ANNOTATION];
  if (netns === undefined) {
    const shown = items.slice(0, 3).map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
    throw new LabError(
      "no-such-pod",
      `no running pod or node ${target} in lab ${name}; the pods and nodes are ${[...shown, "..."].join(", ")}`,
    );
  }
  return joinNetns(netns, argv, signal);
}

async function openLab(name: string): Promise<KubeClient> {
  return new KubeClient(await loadKubeConfig({ path: labPaths(name).kubeconfig, clock: systemClock }), {
    userAgent: "isthmus-lab",
    clock: systemClock,
  });
}

function requireState(name: string): LabState {
  const state = readState(name);
  if (state === undefined || !isRunning(state)) {
    throw new LabError(
      "not-up",
      `lab ${name} does not run: start it with isthmus lab --keep${name === "lab" ? "" : ` --name ${name}`}`,
    );
  }
  return state;
}

/**
 * Removes the objects that a killed lab has left on this machine and on its cluster; returns the number of removed things. The files of the
 * lab stay until all of its objects on the cluster are removed.
 */
async function removeLeftovers(
  name: string,
  { say, signal }: { readonly say: (text: string) => void; readonly signal?: AbortSignal },
): Promise<number> {
  const { processes, namespaces } = await removeTopology(openKernel(), name);
  const state = readState(name);
  const onCluster = state?.identity.isGuest === true && state.isOnCluster;
  if (onCluster) await leaveWithFiles(name, state, { say, signal });
  removeState(name);
  if (processes + namespaces > 0)
    say(`removed the remains of an earlier lab: ${processes} processes, ${namespaces} namespaces`);
  return processes + namespaces + (onCluster ? 1 : 0);
}

async function leaveWithFiles(
  name: string,
  { identity }: Pick<LabState, "identity">,
  options: { readonly say: (text: string) => void; readonly signal: AbortSignal | undefined },
): Promise<void> {
  const { dir } = labPaths(name);
  try {
    await using api = await openLab(name);
    await leaveCluster(api, identity, options);
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    throw new LabError(
      "not-removed",
      `run ${identity.run} of lab ${name} still has objects on its cluster: ${describeError(error)}; run isthmus lab down --name=${name} again (if that cluster does not exist any more, remove ${dir})`,
      { cause: error },
    );
  }
}

/** Removes the objects of all earlier runs of the lab on a cluster. */
async function removeFrom(
  kubeconfig: string,
  name: string,
  options: { readonly say: (text: string) => void; readonly signal: AbortSignal },
): Promise<number> {
  await using api = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), {
    userAgent: "isthmus-lab",
    clock: systemClock,
  });
  return await removeDeadRuns(api, name, options);
}

/** Limits the calls of `tell` to two a second. The first and the last call are always passed to `tell`. */
function throttled(tell: (done: number, total: number) => void): (done: number, total: number) => void {
  let last = Number.NEGATIVE_INFINITY;
  return (done, total) => {
    const now = performance.now();
    if (done !== total && now - last < 500) return;
    last = now;
    tell(done, total);
  };
}
