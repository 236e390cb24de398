import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { type AbortOptions, poll, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { type KubeApi, type Pod, resources } from "#kube/client";
import { coilCrds } from "#kube/coil";
import {
  type BuildName,
  type LabEgress,
  LabError,
  type LabState,
  type LabUpgrade,
  type LabUplinks,
  type SwitchRequest,
} from "#lab/host";
import { connectInside, type Destination } from "#lab/inside";
import { NETNS_ANNOTATION } from "#lab/kubelet";
import { createOwn, type LabIdentity } from "#lab/ownership";
import { pingMesh } from "#lab/ping";
import type { Scenario } from "./default.ts";
import {
  applyClients,
  applyEgresses,
  type ClientPod,
  type EgressName,
  editEgress,
  waitForRouters,
} from "./egress-objects.ts";
import { type ObservedCluster, observeCluster } from "./observe.ts";
import type { LongConnection, UpgradeReport, UpgradeStep } from "./upgrade-report.ts";
import {
  NUMBERED_PORT,
  NumberedServers,
  type NumberedSide,
  openNumbered,
  openNumberedThrough,
  PingFlows,
  type PingingPod,
} from "./upgrade-traffic.ts";

/** The namespace of the default scenario whose pods have every family of the lab, and their label. */
const NAMESPACE = "dual";
const APP = "api";
const SERVICE_PORT = 80;
const EGRESS: EgressName = "both";
const FIELD_MANAGER = "isthmus-lab";
/** The time limit for pods and routers, in milliseconds. */
const PODS_MS = 60_000;
const PING_MS = 5000;
const LOOK_MS = 50;
/** The time that a new connection may need until Services and tunnels are as wanted, in milliseconds. */
const SETTLE_MS = 20_000;
/** The pause between two new connections while programs are replaced, in milliseconds. */
const DIAL_MS = 50;
const PROXY_MS = 5000;
/** The least length of a step, in milliseconds, so that each has pings. */
const STEP_MS = 500;

/** The part of the lab that {@link verifyUpgrade} uses. */
export interface UpgradeLab {
  readonly api: KubeApi;
  readonly scenario: Scenario;
  readonly cluster: ObservedCluster;
  readonly egress: LabEgress;
  readonly uplinks: LabUplinks;
  readonly upgrade: LabUpgrade;
  /** The present state, whose children are the programs that run. */
  readonly state: () => Pick<LabState, "children" | "nodes">;
  readonly switchTo: (request: SwitchRequest) => Promise<void>;
  /** The findings of an audit of the settled cluster. */
  readonly audit: () => Promise<readonly string[]>;
  readonly say: (text: string) => void;
}

type Options = AbortOptions & { readonly signal: AbortSignal };

/** A way to a server, which connections go from the begin to the end, and new ones after each step. */
interface Way {
  readonly name: string;
  /** Rejects with `InsideError` and the signal's reason. */
  readonly open: (options: AbortOptions) => Promise<NumberedSide>;
  /** The places with a program that it goes through, and with which a connection ends. */
  readonly endsWith: readonly string[];
}

/** The place of the routers, which are replaced by themselves. */
const ROUTERS = "routers";

/** Traffic that goes on through all steps. */
interface Traffic {
  readonly flows: PingFlows;
  readonly ways: readonly Way[];
  readonly pods: readonly PingingPod[];
}

/**
 * Upgrades a lab that runs another build to this one, place after place, and back, under pings and connections. New API types come first. After
 * each step pods are made and deleted on the node and on another one, new connections are opened, addresses are compared, and the audit looks.
 * Routers are replaced last in each direction. Connections through a router, the tunnel or the uplink proxy end when a program on their way is replaced,
 * and others follow; meanwhile new ones are tried all the time.
 * Failures are in the report. Rejects with {@link LabError} if the lab cannot be prepared or ends, with `KubeError`, `KernelError`, `InsideError`
 * and the signal's reason.
 */
export async function verifyUpgrade(lab: UpgradeLab, options: Options): Promise<UpgradeReport> {
  const startedMs = performance.now();
  const { upgrade, scenario, say } = lab;
  say(`preparing connections, a Service and an Egress under ${upgrade.versions.before}`);
  const pods = pingingPods(lab.cluster, scenario.identity);
  await using servers = new NumberedServers();
  const ways = await openWays(lab, { servers, pods }, options);
  using long = new LongConnections();
  for (const one of ways) long.add(one, upgrade.versions.before, await untilOpen(one, options));
  using flows = new PingFlows(pods);
  const traffic: Traffic = { flows, ways, pods };
  const steps: UpgradeStep[] = [];
  /** Replaces programs in a step; connections through them end before it, and others follow. */
  const step = async (
    name: string,
    at: {
      readonly nodes: readonly string[];
      readonly place?: string;
      readonly build?: BuildName;
      readonly isLast?: boolean;
    },
    work: () => Promise<void>,
  ): Promise<void> => {
    say(name);
    const { nodes: on, place = "", build = "before", isLast = false } = at;
    const ending = ways.filter(({ endsWith }) => endsWith.includes(place));
    long.end(place);
    steps.push(await takeStep(lab, { traffic, name, nodes: on, ending, work }, options));
    if (!isLast) for (const one of ending) long.add(one, upgrade.versions[build], await untilOpen(one, options));
  };
  const [controllers = "", ...nodes] = upgrade.places;
  /** The node that is switched, and the one that is switched last. */
  const mixed = (node: string): readonly string[] => [...new Set([node, nodes.at(-1) ?? node])];
  const switchAll = async (places: readonly string[], build: BuildName): Promise<void> => {
    for (const place of places) {
      const at = { nodes: place === controllers ? nodes.slice(0, 1) : mixed(place), place, build };
      await step(`${place} to ${upgrade.versions[build]}`, at, () => lab.switchTo({ place, build }));
    }
  };
  await step(`all on ${upgrade.versions.before}`, { nodes: nodes.slice(0, 1) }, async () => undefined);
  await step(`API types of ${upgrade.versions.after}`, { nodes: [] }, () => applyTypes(lab.api, options));
  const switchRouters = async (build: BuildName): Promise<void> => {
    const at = { nodes: [], place: ROUTERS, build, isLast: build === "before" };
    await step(`routers to ${upgrade.versions[build]}`, at, () => replaceRouter(lab, build, options));
  };
  await switchAll([controllers, ...nodes], "after");
  await switchRouters("after");
  await switchAll([...nodes, controllers], "before");
  await switchRouters("before");
  return {
    from: upgrade.versions.before,
    to: upgrade.versions.after,
    steps,
    connections: long.report(),
    pods: lab.cluster.pods.length,
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(2)),
  };
}

/** Pure: one pod with every family on each node. Throws {@link LabError} `not-reached` if a node has none. */
function pingingPods({ nodes, pods }: ObservedCluster, { prefix }: LabIdentity): readonly PingingPod[] {
  return nodes.map(({ name }) => {
    const found = pods.find((pod) => pod.node === name && pod.name.startsWith(`${prefix}${NAMESPACE}/`));
    if (found !== undefined) return found;
    throw new LabError("not-reached", `node ${name} has no pod with every family; use more --pods`);
  });
}

/** Makes the servers, the Service and the Egress, and returns the ways to them. */
async function openWays(
  lab: UpgradeLab,
  { servers, pods }: { readonly servers: NumberedServers; readonly pods: readonly PingingPod[] },
  options: Options,
): Promise<readonly Way[]> {
  const { api, scenario, cluster, egress } = lab;
  const { identity } = scenario;
  const prefix = `${identity.prefix}${NAMESPACE}/${APP}-`;
  for (const pod of cluster.pods.filter(({ name }) => name.startsWith(prefix)))
    for (const address of pod.addresses) await servers.serve({ path: pod.netns }, address);
  const outside = egress.sites.find(({ name }) => name === EGRESS)?.addresses.map(IpAddress.parse) ?? [];
  for (const address of outside) await servers.serve({ name: egress.outside }, address);
  const service = {
    metadata: { name: "numbered", namespace: `${identity.prefix}${NAMESPACE}` },
    spec: {
      selector: { app: APP },
      ipFamilyPolicy: "PreferDualStack",
      ports: [{ name: "numbered", port: SERVICE_PORT, targetPort: NUMBERED_PORT }],
    },
  };
  await createOwn(api, identity, resources.services, service, options);
  const { spec } = await api.get(resources.services, service.metadata, options);
  const deadline = { ...options, deadlineMs: PODS_MS };
  await applyEgresses(api, { at: egress, identity }, { ...deadline, only: [EGRESS] });
  const [client] = await applyClients(api, { at: egress, identity }, { ...deadline, only: { client1: [EGRESS] } });
  const [first, ...others] = pods;
  const last = others.at(-1) ?? first;
  if (first === undefined || last === undefined || client === undefined)
    throw new Error("a lab has nodes and a client");
  const { tunnel, places } = lab.upgrade;
  const [controllers = ""] = places;
  return [
    ...last.addresses.map((address) => way("pod to pod", first, address, NUMBERED_PORT)),
    ...(spec?.clusterIPs ?? []).map((text) => way("pod to Service", first, IpAddress.parse(text), SERVICE_PORT)),
    ...outside.map((address) => way("pod through Egress", client, address, NUMBERED_PORT, [ROUTERS])),
    ...(await serveNode(lab, last.node, servers)).map((to) => ({
      name: `control plane through the tunnel (to ${last.node}, ${to.address})`,
      open: (at: AbortOptions) => openNumberedThrough(connect({ path: tunnel.frontend }), to, at),
      endsWith: [controllers, last.node],
    })),
    ...(await serveUplinks(lab.uplinks, servers)).map((to) => ({
      name: `${lab.uplinks.node} through the uplink proxy (to ${to.address})`,
      open: async (at: AbortOptions) => {
        const { address, port } = lab.uplinks.proxy;
        const proxy = { address: IpAddress.parse(address), port };
        const socket = await connectInside({ name: lab.uplinks.netns }, proxy, { ...at, timeoutMs: PROXY_MS });
        return openNumberedThrough(socket, to, at);
      },
      endsWith: [lab.uplinks.node],
    })),
  ];
}

/** Serves on a node's own addresses, which the tunnel reaches by the agent of that node. */
async function serveNode(
  { state }: UpgradeLab,
  name: string,
  servers: NumberedServers,
): Promise<readonly Destination[]> {
  const node = state().nodes.find((one) => one.name === name);
  if (node === undefined) throw new Error(`the lab has no node ${name}`);
  const addresses = node.addresses.map((text) => IpAddress.parse(text));
  for (const address of addresses) await servers.serve({ name: node.netns }, address);
  return addresses.map((address) => ({ address, port: NUMBERED_PORT }));
}

/** Serves on the internet's addresses behind the uplinks. */
async function serveUplinks(
  { server, internet }: LabUplinks,
  servers: NumberedServers,
): Promise<readonly Destination[]> {
  const addresses = server.addresses.map((text) => IpAddress.parse(text));
  for (const address of addresses) await servers.serve({ name: internet }, address);
  return addresses.map((address) => ({ address, port: NUMBERED_PORT }));
}

function way(
  name: string,
  from: PingingPod | ClientPod,
  address: IpAddress,
  port: number,
  endsWith: readonly string[] = [],
): Way {
  return {
    name: `${name} (${from.name} on ${from.node} to ${address})`,
    open: (options) => openNumbered({ path: from.netns }, { address, port }, options),
    endsWith,
  };
}

/** Opens a connection as soon as the way is there. Rejects with the error of the last try. */
async function untilOpen(at: Way, options: Options): Promise<NumberedSide> {
  const attempt = async (): Promise<NumberedSide | ExpectedError> => {
    try {
      return await at.open(options);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      return error;
    }
  };
  const found = await poll(attempt, {
    until: (one) => !(one instanceof ExpectedError),
    everyMs: LOOK_MS,
    deadlineMs: SETTLE_MS,
    signal: options.signal,
    clock: systemClock,
  });
  if (!(found instanceof ExpectedError)) return found;
  throw new LabError("not-reached", `${at.name}: ${describeError(found)}`, { cause: found });
}

/** Gives the routers of the Egress the command of a build, and waits until a new one is alone. */
async function replaceRouter({ api, egress, upgrade }: UpgradeLab, build: BuildName, options: Options): Promise<void> {
  const deadline = { ...options, deadlineMs: PODS_MS };
  const [old] = await waitForRouters(api, egress, EGRESS, deadline);
  const container = { name: "egress", command: [...upgrade.routers[build]], args: [...egress.router.args] };
  const spec = { template: { spec: { containers: [container] } } };
  await editEgress(api, egress, { name: EGRESS, spec }, options);
  const [router] = await poll(() => waitForRouters(api, egress, EGRESS, deadline), {
    until: ([one]) => one?.name !== old?.name,
    everyMs: LOOK_MS,
    deadlineMs: PODS_MS,
    signal: options.signal,
    clock: systemClock,
  });
  if (router?.name === old?.name)
    throw new LabError("not-reached", `router ${old?.name} was not replaced in ${PODS_MS / 1000} s`);
}

/** Connections that stay open through all steps; those through routers and proxies until these are replaced. */
class LongConnections implements Disposable {
  #open: { readonly way: Way; readonly name: string; readonly side: NumberedSide }[] = [];
  readonly #ended: LongConnection[] = [];

  /** `version` is that of the programs that were replaced last on the way. */
  add(at: Way, version: string, side: NumberedSide): void {
    const name = at.endsWith.length > 0 ? `${at.name}, opened under ${version}` : at.name;
    this.#open.push({ way: at, name, side });
  }

  /** Ends those through programs of a place; a fault until now is one. */
  end(place: string): void {
    const ending = this.#open.filter(({ way: { endsWith } }) => endsWith.includes(place));
    this.#open = this.#open.filter((one) => !ending.includes(one));
    for (const one of ending) {
      this.#ended.push(reportOf(one));
      one.side[Symbol.dispose]();
    }
  }

  report(): readonly LongConnection[] {
    return [...this.#open.map(reportOf), ...this.#ended];
  }

  [Symbol.dispose](): void {
    for (const { side } of this.#open) side[Symbol.dispose]();
  }
}

function reportOf({ name, side }: { readonly name: string; readonly side: NumberedSide }): LongConnection {
  return {
    name,
    sent: side.sent,
    received: side.received,
    longestGapMs: Number(side.longestGapMs.toFixed(1)),
    fault: side.fault ?? null,
  };
}

/** Applies the API types of this build, as `kubectl apply -f deploy/crds` does. */
async function applyTypes(api: KubeApi, options: Options): Promise<void> {
  for (const crd of coilCrds) {
    const patch = { type: "apply", body: crd, fieldManager: FIELD_MANAGER, force: true } as const;
    await api.patch(resources.customResourceDefinitions, { name: crd.metadata.name }, patch, options);
  }
}

async function takeStep(
  lab: UpgradeLab,
  at: {
    readonly traffic: Traffic;
    readonly name: string;
    readonly nodes: readonly string[];
    /** The ways through programs that are replaced. */
    readonly ending: readonly Way[];
    readonly work: () => Promise<void>;
  },
  options: Options,
): Promise<UpgradeStep> {
  const startedMs = performance.now();
  const { flows, ways, pods } = at.traffic;
  const outages = await dialDuring(at.work, at.ending, options);
  const tried = await Promise.all(at.nodes.map((node) => makeAndDelete(lab, { node, pods }, options)));
  const opened = await Promise.all(ways.map((one) => openAgain(one, options)));
  const moved = await changedAddresses(lab, options);
  const findings = await lab.audit();
  const restMs = STEP_MS - (performance.now() - startedMs);
  await poll(() => performance.now() - startedMs, {
    until: (tookMs) => tookMs >= STEP_MS,
    everyMs: Math.max(1, restMs),
    signal: options.signal,
    clock: systemClock,
  });
  const { lostBy, ...pings } = await flows.count(options);
  const faults = [...tried, ...opened].flatMap(({ fault }) => (fault === undefined ? [] : [fault]));
  return {
    name: at.name,
    programs: programsOf(lab),
    pings,
    lostBy,
    made: tried.flatMap(({ name, fault }) => (fault === undefined ? [name] : [])),
    opened: opened.filter(({ fault }) => fault === undefined).length,
    outages,
    faults: [...faults, ...moved],
    findings,
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(2)),
  };
}

/**
 * Opens new connections on ways, one after the other on each, until the work is done and one has succeeded after it. Returns the longest time without
 * a success of each. Rejects as the work does, and with {@link LabError} `not-reached`.
 */
async function dialDuring(
  work: () => Promise<void>,
  ways: readonly Way[],
  options: Options,
): Promise<UpgradeStep["outages"]> {
  let isDone = false;
  const done = work().finally(() => {
    isDone = true;
  });
  const dial = async (at: Way): Promise<UpgradeStep["outages"][number]> => {
    let [lastMs, longestMs] = [performance.now(), 0];
    for (;;) {
      const isLast = isDone;
      using _side = await untilOpen(at, options);
      const now = performance.now();
      longestMs = Math.max(longestMs, now - lastMs);
      lastMs = now;
      if (isLast) return { way: at.name, ms: Math.round(longestMs) };
      await sleep(DIAL_MS, { signal: options.signal, clock: systemClock });
    }
  };
  const [outages] = await Promise.all([Promise.all(ways.map(dial)), done]);
  return outages;
}

/** The running programs of each build, by their command lines. */
function programsOf({ upgrade: { marks }, state }: UpgradeLab): UpgradeStep["programs"] {
  const lines = state().children.map(({ pid }) => commandLine(pid));
  const countOf = (build: BuildName): number => lines.filter((line) => line.includes(marks[build])).length;
  return { before: countOf("before"), after: countOf("after") };
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return "";
  }
}

/** Opens a new connection on a way, and closes it. */
async function openAgain(at: Way, options: Options): Promise<{ readonly fault?: string }> {
  try {
    using _side = await at.open(options);
    return {};
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    return { fault: `a new connection, ${at.name}: ${describeError(error)}` };
  }
}

/** Makes a pod on a node, lets it ping the pods of all nodes, deletes it, and waits until it is gone. */
async function makeAndDelete(
  { api, scenario: { identity } }: UpgradeLab,
  { node, pods }: { readonly node: string; readonly pods: readonly PingingPod[] },
  options: Options,
): Promise<{ readonly name: string; readonly fault?: string }> {
  const ref = { name: `on-${node}`, namespace: `${identity.prefix}${NAMESPACE}` };
  const name = `${ref.namespace}/${ref.name}`;
  const containers = [{ name: "main", image: "lab.isthmus.dev/pause" }];
  const draft = { metadata: ref, spec: { nodeName: node, terminationGracePeriodSeconds: 0, containers } };
  await createOwn(api, identity, resources.pods, draft, options);
  const look = (): Promise<Pod> => api.get(resources.pods, ref, options);
  const wait = { everyMs: LOOK_MS, deadlineMs: PODS_MS, signal: options.signal, clock: systemClock };
  const pod = await poll(look, { ...wait, until: isRunning });
  const addresses = (pod.status?.podIPs ?? []).flatMap(({ ip }) => (ip === undefined ? [] : [IpAddress.parse(ip)]));
  const netns = pod.metadata.annotations?.[NETNS_ANNOTATION];
  if (!isRunning(pod) || netns === undefined)
    return { name, fault: `pod ${name} does not run: ${pod.status?.message ?? pod.status?.phase ?? "no status"}` };
  const mesh = await pingMesh([{ name, addresses, netns }], pods, { ...options, deadlineMs: PING_MS });
  await api.delete(resources.pods, ref, { ...options, gracePeriodSeconds: 0 });
  const isThere = async (): Promise<boolean> => {
    const { items } = await api.listAll(resources.pods, { namespace: ref.namespace, signal: options.signal });
    return items.some(({ metadata }) => metadata.uid === pod.metadata.uid);
  };
  const left = await poll(isThere, { ...wait, until: (there) => !there });
  if (left) return { name, fault: `pod ${name} is not deleted after ${PODS_MS / 1000} s` };
  const [lost] = mesh.unanswered;
  return lost === undefined ? { name } : { name, fault: `pod ${name} does not reach ${lost.to} (${lost.address})` };
}

function isRunning({ metadata, status }: Pod): boolean {
  return status?.phase === "Running" && metadata.annotations?.[NETNS_ANNOTATION] !== undefined;
}

/** Pods of the scenario that are gone, or have other addresses than at first. */
async function changedAddresses({ api, scenario, cluster }: UpgradeLab, options: Options): Promise<readonly string[]> {
  const now = await observeCluster(api, scenario, options);
  const textOf = (pod: ObservedCluster["pods"][number] | undefined): string => pod?.addresses.join(" ") ?? "none";
  return cluster.pods.flatMap((pod) => {
    const [had, has] = [textOf(pod), textOf(now.pods.find(({ name }) => name === pod.name))];
    return had === has ? [] : [`pod ${pod.name} had ${had} and has ${has}`];
  });
}
