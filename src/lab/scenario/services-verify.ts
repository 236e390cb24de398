import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { IpAddress as Ip } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { LabError, type LabServices, type LabState } from "#lab/host";
import { Balancer, type Member } from "./services-balancer.ts";
import { type Balancers, drainNode } from "./services-drain.ts";
import { Load, type LoadTarget } from "./services-load.ts";
import { tryServices } from "./services-matrix.ts";
import { applyServices, type BackendName, serviceSpecs, startRollout } from "./services-objects.ts";
import { type ObservedServices, observeServices, waitForBackends } from "./services-observe.ts";
import type { LoadResult, RolloutReport, ServicesReport, ServiceTry } from "./services-report.ts";

/** The time that the proxies may take until new Services work everywhere, in milliseconds. */
const SETTLE_MS = 20_000;
const AGAIN_MS = 200;
/** The time limit for the replacement of pods, in milliseconds. */
const PODS_MS = 120_000;
const HEALTH_PATH = "/healthz";

interface Test {
  readonly api: KubeApi;
  readonly state: Pick<LabState, "nodes" | "families" | "identity">;
  readonly at: LabServices;
  readonly members: readonly Member[];
  readonly say: (text: string) => void;
}

/**
 * Creates Services of every kind with pods behind them and tries them from pods, nodes and outside. Then, under load
 * through two balancers outside, drains a node and replaces all pods. Failures are in the report. Rejects with
 * `LabError` `not-reached` if pods do not get ready, with `KubeError`, `KernelError` and the signal's reason.
 */
export async function verifyServices(
  { api, state, at, say }: Omit<Test, "members">,
  options: { readonly signal: AbortSignal },
): Promise<ServicesReport> {
  const startedMs = performance.now();
  const members = state.nodes.map(({ name, addresses }) => ({
    node: name,
    addresses: addresses.map((text) => Ip.parse(text)),
  }));
  const { identity } = state;
  const nodes = state.nodes.length;
  say("creating Services and their pods");
  await applyServices(api, { at, identity, nodes }, options);
  await waitForBackends(api, { identity, nodes }, { ...options, deadlineMs: PODS_MS });
  const observed = await observeServices(api, identity, options);
  // A cluster that the lab did not make may give Services fewer families than the lab's nodes have.
  const served = new Set(observed.services.get("web")?.clusterIps.map(({ family }) => family));
  const test: Test = {
    api,
    state: { ...state, families: state.families.filter((family) => served.has(family as IpFamily)) },
    at,
    members: members.map(({ node, addresses }) => ({
      node,
      addresses: addresses.filter((one) => served.has(one.family)),
    })),
    say,
  };
  const tries = await settledTries(test, observed, options);
  const stopping = new AbortController();
  const balancers = balancersOf(test, observed);
  const probing = Promise.all([balancers.cluster.run(stopping), balancers.local.run(stopping)]);
  try {
    await poll(() => balancers.cluster.inCount === nodes && balancers.local.inCount > 0, {
      until: (ready) => ready,
      everyMs: AGAIN_MS,
      deadlineMs: SETTLE_MS,
      signal: options.signal,
      clock: systemClock,
    });
    const targets = targetsOf(balancers, observed);
    const node = drainable(observed);
    say(`draining ${node} under load`);
    const drained = await underLoad(
      test,
      targets,
      (load) => drainNode({ api, identity, load, balancers }, node, options),
      options,
    );
    say("replacing all pods under load");
    // The rollouts run at the same time, each under the load of its own Service.
    const rollouts = await Promise.all(targets.map((target) => rollOut(test, target, options)));
    return {
      services: Object.keys(serviceSpecs()),
      tries,
      drain: { ...drained.result, ...drained.load },
      rollouts,
      seconds: secondsSince(startedMs),
    };
  } finally {
    stopping.abort();
    await probing;
  }
}

/** Tries until all results are as wanted, or the deadline: proxies may need time after the last pod is ready. */
function settledTries(test: Test, observed: ObservedServices, options: AbortOptions): Promise<readonly ServiceTry[]> {
  const addressesOf = (node: string): readonly IpAddress[] =>
    test.members.find((member) => member.node === node)?.addresses ?? [];
  const outside = test.at.addresses.map((text) => Ip.parse(text));
  return poll(() => tryServices({ ...test, observed, addressesOf, outside }, options), {
    until: (tries) => tries.every(({ ok }) => ok),
    everyMs: AGAIN_MS,
    deadlineMs: SETTLE_MS,
    signal: options.signal,
    clock: systemClock,
  });
}

function balancersOf({ at, members }: Test, { services }: ObservedServices): Balancers {
  const from = { name: at.outside };
  const port = services.get("edge")?.healthCheckNodePort ?? 0;
  return {
    cluster: new Balancer({ from, members, probe: { port: at.healthPort, path: HEALTH_PATH } }),
    local: new Balancer({ from, members, probe: { port, path: "/" } }),
  };
}

/** A target of the test whose Service is backed by a Deployment of the same name. */
type ServiceTarget = LoadTarget & { readonly service: BackendName };

function targetsOf(balancers: Balancers, { services }: ObservedServices): readonly ServiceTarget[] {
  return [
    { service: "web", balancer: balancers.cluster, nodePort: services.get("web")?.nodePort ?? 0 },
    { service: "edge", balancer: balancers.local, nodePort: services.get("edge")?.nodePort ?? 0 },
  ];
}

/** Pure: a node with pods of both Deployments. */
function drainable({ pods }: ObservedServices): string {
  const having = (app: BackendName, node: string): boolean => pods.some((pod) => pod.app === app && pod.node === node);
  const [node] = pods
    .map((pod) => pod.node)
    .filter((name) => having("web", name) && having("edge", name))
    .sort();
  if (node === undefined)
    throw new LabError("not-reached", "no node has pods of both web and edge: no node can be drained");
  return node;
}

async function underLoad<T>(
  { at }: Test,
  targets: readonly LoadTarget[],
  work: (load: Load) => Promise<T>,
  { signal }: { readonly signal: AbortSignal },
): Promise<{ readonly result: T; readonly load: LoadResult }> {
  const load = new Load({ name: at.outside }, targets);
  const running = load.run({ signal });
  running.catch(() => undefined);
  try {
    const result = await work(load);
    load.stop();
    return { result, load: await running };
  } finally {
    load.stop();
    await running;
  }
}

async function rollOut(
  test: Test,
  target: ServiceTarget,
  options: { readonly signal: AbortSignal },
): Promise<RolloutReport> {
  const { api, state } = test;
  const deployment = target.service;
  const { identity } = state;
  const startedMs = performance.now();
  const nodes = state.nodes.length;
  const work = async (): Promise<void> => {
    await startRollout(api, { name: deployment, identity, revision: 2 }, options);
    await waitForBackends(api, { identity, nodes, only: deployment }, { ...options, deadlineMs: PODS_MS });
  };
  const { load } = await underLoad(test, [target], work, options);
  const { pods } = await observeServices(api, identity, options);
  return {
    deployment,
    externalTrafficPolicy: deployment === "web" ? "Cluster" : "Local",
    pods: pods.filter(({ app }) => app === deployment).length,
    seconds: secondsSince(startedMs),
    ...load,
  };
}

function secondsSince(startedMs: number): number {
  return Number(((performance.now() - startedMs) / 1000).toFixed(2));
}
