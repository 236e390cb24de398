/**
 * The churn of `scale`: real pods are created and deleted on our node, simulated nodes request blocks for their pods and release them,
 * kubelets report, nodes register and are deleted.
 */
import { Semaphore, sleep } from "#base/async";
import { callGrpc } from "#features/cni";
import { type KubeApi, resources } from "#kube/client";
import { CNI_SERVICE, EMPTY_CNI_ARGS, encodeCniArgs } from "#wire/cnirpc";
import { BLOCK_ADDRESSES, nodeName, nodeObject, OUR_NAMESPACE, OUR_NODE, podObject } from "./scale.objects.ts";
import type { Askers } from "./scale.requests.ts";
import type { ScaleWorld } from "./scale.world.ts";

/** Simulated requests for blocks a second, each of a node that gets a block's worth of pods. */
const REQUESTS_PER_SECOND = 5;
/** The interval at which a kubelet writes an unchanged Node, in seconds (nodeStatusReportFrequency). */
const NODE_REPORT_SECONDS = 300;
/** The interval at which nodes register, and after which they are deleted again, in milliseconds. */
const NODE_EVERY_MS = 2000;
/** The number of blocks of simulated nodes in the churn; above it the oldest block is released. */
const KEPT_BLOCKS = 50;
/** The minimum number of pods of our node: 150,000 pods on 5,000 nodes are 30 pods for each node. */
const MIN_PODS = 30;
const MAX_BURST = 20;

/** The results of the churn. */
export interface Churned {
  /** ADDs of our node. */
  readonly ourPods: number;
  /** Pods that simulated nodes got. */
  readonly otherPods: number;
  /** Times of the simulated requests, in milliseconds. */
  readonly requestMs: readonly number[];
  readonly addMs: readonly number[];
}

interface Place {
  readonly world: ScaleWorld;
  readonly askers: Askers;
  readonly nodes: number;
  readonly signal: AbortSignal;
}

/** The pods of our node: real links in real namespaces. */
export class OurPods {
  readonly #world: ScaleWorld;
  readonly #signal: AbortSignal;
  readonly #running = new Set<number>();
  readonly addMs: number[] = [];

  constructor(world: ScaleWorld, signal: AbortSignal) {
    this.#world = world;
    this.#signal = signal;
  }

  get running(): number {
    return this.#running.size;
  }

  /** The pods that do not run now, and the pods that run. */
  pick(count: number, from: "free" | "running"): number[] {
    const all = this.#world.pods.map((_, at) => at).filter((at) => this.#running.has(at) === (from === "running"));
    return shuffled(all).slice(0, count);
  }

  /** A Pod object, and the ADD of its sandbox. */
  async add(at: number): Promise<void> {
    const name = `our-${at}`;
    const { namespace, ...pod } = { namespace: OUR_NAMESPACE, ...podObject(OUR_NAMESPACE, name, OUR_NODE) };
    await this.#world.api.create(resources.pods, { ...pod, metadata: { name, namespace } } as never, this.#options);
    const startedMs = performance.now();
    await this.#cni("Add", at);
    this.addMs.push(performance.now() - startedMs);
    this.#running.add(at);
  }

  /** The DEL of its sandbox, and then its Pod object. */
  async remove(at: number): Promise<void> {
    await this.#cni("Del", at);
    this.#running.delete(at);
    const ref = { namespace: OUR_NAMESPACE, name: `our-${at}` };
    await this.#world.api.delete(resources.pods, ref, { ...this.#options, gracePeriodSeconds: 0 });
  }

  get #options(): { readonly signal: AbortSignal } {
    return { signal: this.#signal };
  }

  async #cni(method: "Add" | "Del", at: number): Promise<void> {
    const args = { K8S_POD_NAMESPACE: OUR_NAMESPACE, K8S_POD_NAME: `our-${at}` };
    const netns = `/run/netns/${this.#world.pods[at]}`;
    const request = encodeCniArgs({ ...EMPTY_CNI_ARGS, containerId: `scale-${at}`, netns, ifname: "eth0", args });
    const options = { ...this.#options, timeoutMs: 60_000 };
    await callGrpc(this.#world.socket, `/${CNI_SERVICE}/${method}`, request, options);
  }
}

/** Runs the churn for this number of seconds, then until all started operations are done. */
export async function churn(place: Place, ourPods: OurPods, seconds: number): Promise<Churned> {
  const until = performance.now() + seconds * 1000;
  const requestMs: number[] = [];
  const before = ourPods.addMs.length;
  const others = { pods: 0 };
  await Promise.all([
    churnOurs(place, ourPods, until),
    churnOthers(place, { requestMs, others }, until),
    reportNodes(place, until),
    registerNodes(place, { requestMs }, until),
  ]);
  const addMs = ourPods.addMs.slice(before);
  return { ourPods: addMs.length, otherPods: others.pods, requestMs, addMs };
}

/** Bursts of pods: some are deleted, some created; their number is between 30 and the node's maximum. */
async function churnOurs({ world, signal }: Place, pods: OurPods, until: number): Promise<void> {
  const slots = new Semaphore(4);
  const burst = (): number => 1 + Math.floor(Math.random() * MAX_BURST);
  const most = world.pods.length;
  while (performance.now() < until) {
    const going = pods.pick(Math.max(0, Math.min(burst(), pods.running - Math.min(MIN_PODS, most >> 1))), "running");
    await Promise.all(going.map((at) => slots.run(() => pods.remove(at), { signal })));
    await Promise.all(pods.pick(burst(), "free").map((at) => slots.run(() => pods.add(at), { signal })));
    await sleep(250, { signal });
  }
}

/** Nodes get a block's worth of pods, and a block for them; the pods and blocks of the oldest nodes are deleted. */
async function churnOthers(
  { world: { api }, askers, nodes, signal }: Place,
  { requestMs, others }: { readonly requestMs: number[]; readonly others: { pods: number } },
  until: number,
): Promise<void> {
  const held: { readonly block: string; readonly pods: readonly string[] }[] = [];
  // No program watches these pods. More concurrent requests would form a queue at the API server's only thread, which a real server does
  // not have.
  const slots = new Semaphore(2);
  const one = async (at: number): Promise<void> => {
    const node = nodeName(at % nodes);
    const { block, ms } = await askers.ask(node);
    requestMs.push(ms);
    const pods = Array.from({ length: BLOCK_ADDRESSES }, (_, pod) => `churn-${at}-${pod}`);
    await Promise.all(pods.map((name) => slots.run(() => makePod(api, name, node, signal), { signal })));
    others.pods += pods.length;
    held.push({ block, pods });
    const oldest = held.length > KEPT_BLOCKS ? held.shift() : undefined;
    if (oldest === undefined) return;
    await Promise.all(oldest.pods.map((name) => slots.run(() => removePod(api, name, signal), { signal })));
    await askers.giveBack(oldest.block);
  };
  await paced(1000 / REQUESTS_PER_SECOND, until, signal, one);
}

/** Kubelets write the heartbeats of their Nodes. */
async function reportNodes({ world: { api }, nodes, signal }: Place, until: number): Promise<void> {
  await paced((NODE_REPORT_SECONDS * 1000) / nodes, until, signal, async (at) => {
    const lastHeartbeatTime = new Date().toISOString();
    const body = { status: { conditions: [{ type: "Ready", lastHeartbeatTime }] } };
    const patch = { type: "strategic", body } as const;
    await api.patch(resources.nodes, { name: nodeName(at % nodes) }, patch, { subresource: "status", signal });
  });
}

/** Nodes register, request a block, and are deleted; the controller collects their blocks after its grace. */
async function registerNodes(
  { world: { api }, askers, nodes, signal }: Place,
  { requestMs }: { readonly requestMs: number[] },
  until: number,
): Promise<void> {
  await paced(NODE_EVERY_MS, until, signal, async (at) => {
    const name = `new-${at}`;
    const { metadata, spec, status } = nodeObject(name, nodes + 1 + at) as unknown as Record<string, object>;
    await api.create(resources.nodes, { metadata, spec, status } as never, { signal });
    requestMs.push((await askers.ask(name)).ms);
    await sleep(NODE_EVERY_MS, { signal });
    await api.delete(resources.nodes, { name }, { signal });
  });
}

async function makePod(api: KubeApi, name: string, node: string, signal: AbortSignal): Promise<void> {
  const { metadata, spec } = podObject("default", name, node) as unknown as Record<string, object>;
  await api.create(resources.pods, { metadata, spec } as never, { signal });
}

async function removePod(api: KubeApi, name: string, signal: AbortSignal): Promise<void> {
  await api.delete(resources.pods, { namespace: "default", name }, { gracePeriodSeconds: 0, signal });
}

/** Starts work at a steady pace; resolves when the last operation has ended. Rejects if an operation fails. */
async function paced(
  everyMs: number,
  until: number,
  signal: AbortSignal,
  work: (at: number) => Promise<void>,
): Promise<void> {
  const running = new Set<Promise<void>>();
  const failure = Promise.withResolvers<never>();
  failure.promise.catch(() => undefined);
  const startedMs = performance.now();
  for (let at = 0; ; at += 1) {
    const dueMs = startedMs + at * everyMs;
    if (dueMs >= until) break;
    await Promise.race([sleep(Math.max(0, dueMs - performance.now()), { signal }), failure.promise]);
    const one = work(at).finally(() => running.delete(one));
    one.catch(failure.reject);
    running.add(one);
  }
  await Promise.all(running);
}

function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((value) => ({ value, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ value }) => value);
}
