import { type AbortOptions, pause, poll } from "#base/async";
import { systemClock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { findObject, type KubeApi, resources } from "#kube/client";
import { type LabEgress, LabError } from "#lab/host";
import { processesIn } from "#lab/topology";
import { type ClientPod, editEgress, type RouterPod, waitForRouters } from "./egress-objects.ts";
import type { DrainedReport, KillReport, RouterLoss } from "./egress-report.ts";
import { type Connect, ConnectLoad, type SourceSeen, Stream, seenSource } from "./egress-traffic.ts";

const STREAMS = 50;
const CONNECTS_PER_SECOND = 200;
/** The length of the load before a router goes, and after one that lost its power, in milliseconds. */
const BEFORE_MS = 1000;
const AFTER_MS = 4000;
/** A connect that takes longer has lost a packet: the first retransmission is after a second. */
const SLOW_MS = 500;
/** Resets within this time of a router's own end are not counted as those of its drain, in milliseconds. */
const END_MS = 500;
const LOOK_MS = 20;
const PODS_MS = 60_000;
/** Connects in a row that must have one source until affinity counts as in force. */
const STICKY = 6;
const ANSWER_MS = 2000;
const ROUTER_LINK = "eth0";
/** The time after a deletion until a new flow cannot go to the router any more, in milliseconds. */
const LATE_MS = 1000;

/** The Egress with two routers, its clients, and a host that they reach through it. */
export interface Pair {
  readonly api: KubeApi;
  readonly at: LabEgress;
  readonly clients: readonly ClientPod[];
  readonly address: IpAddress;
}

type Options = AbortOptions & { readonly signal: AbortSignal };

/**
 * Takes the power from a router, under load: its link goes down and its process is killed at once. Then replaces its pod. Both routers have
 * streams, opened without affinity; then each client has one router, and the first client's is taken. Rejects with `KubeError`, `KernelError`, `InsideError`, {@link LabError}.
 */
export async function killRouter(pair: Pair, options: Options): Promise<KillReport> {
  const routers = await waitForRouters(pair.api, pair.at, "pair", { ...options, deadlineMs: PODS_MS });
  using streams = await openStreams(pair, options);
  const ofOne = streams.all.filter((_, at) => at % pair.clients.length === 0);
  const routersOfOne = new Set(ofOne.map(({ source }) => source)).size;
  await editEgress(pair.api, pair.at, { name: "pair", spec: { sessionAffinity: "ClientIP" } }, options);
  const [source = ""] = await untilSticky(pair, options);
  const router = routers.find((one) => isOf(one, { source }));
  if (router === undefined) throw new LabError("not-reached", `no router of the Egress pair has the address ${source}`);
  const load = loadOf(pair, options);
  await pause(BEFORE_MS, options);
  const goneMs = performance.now();
  powerOff(router);
  await pause(AFTER_MS, options);
  const loss = streams.loss(router, goneMs + AFTER_MS / 2);
  const connects = await load.stop();
  const { name } = router;
  // The pod's process has ended and its kubelet has removed it; the object stays for somebody who asks why.
  await pair.api.delete(resources.pods, { name, namespace: pair.at.namespace }, { ...options, gracePeriodSeconds: 0 });
  await waitForRouters(pair.api, pair.at, "pair", { ...options, deadlineMs: PODS_MS });
  const late = connects.filter((one) => one.startedMs + one.tookMs > goneMs && (isFailed(one) || one.tookMs > SLOW_MS));
  const lastMs = Math.max(goneMs, ...late.map(({ startedMs }) => startedMs));
  return {
    router: name,
    ...loss,
    routersOfOne,
    connects: connects.length,
    failed: failuresOf(connects, goneMs),
    failoverSeconds: seconds(lastMs - goneMs),
  };
}

/**
 * Deletes the pod of the router with most streams, under load, with the affinity by client that {@link killRouter} has left. Its streams are counted until shortly before the
 * router ends; then they end too, as those of clients that are done. Rejects as {@link killRouter} does.
 */
export async function drainRouter(pair: Pair, options: Options): Promise<DrainedReport> {
  const { api, at } = pair;
  const routers = await waitForRouters(api, at, "pair", { ...options, deadlineMs: PODS_MS });
  using streams = await openStreams(pair, options);
  const router = busiest(routers, streams.all);
  const load = loadOf(pair, options);
  await pause(BEFORE_MS, options);
  const ref = { name: router.name, namespace: at.namespace };
  const { uid } = (await api.get(resources.pods, ref, options)).metadata;
  const goneMs = performance.now();
  await api.delete(resources.pods, ref, { ...options, preconditions: { uid } });
  const endMs = at.drainMs - END_MS;
  await pause(endMs, options);
  const loss = streams.loss(router, goneMs + endMs / 2);
  streams[Symbol.dispose]();
  const isGone = async (): Promise<boolean> =>
    (await findObject(api, resources.pods, ref, options))?.metadata.uid !== uid;
  await poll(isGone, {
    until: (gone) => gone,
    everyMs: LOOK_MS,
    deadlineMs: PODS_MS,
    signal: options.signal,
    clock: systemClock,
  });
  const tookMs = performance.now() - goneMs;
  await pause(BEFORE_MS, options);
  const connects = await load.stop();
  await waitForRouters(api, at, "pair", { ...options, deadlineMs: PODS_MS });
  const isLast = isAtEnd({ goneMs, drainMs: at.drainMs, tookMs });
  const lateMs = goneMs + LATE_MS;
  return {
    router: router.name,
    ...loss,
    connects: connects.length,
    failed: failuresOf(
      connects.filter((one) => !isLast(one)),
      goneMs,
    ),
    stillThrough: connects.filter(({ startedMs, seen }) => startedMs > lateMs && isOf(router, seen)).length,
    failedAtEnd: connects.filter((one) => isLast(one) && isFailed(one)).length,
    seconds: seconds(tookMs),
  };
}

/** Streams of all clients, in turn. */
export class Streams implements Disposable {
  readonly all: readonly Stream[];

  constructor(all: readonly Stream[]) {
    this.all = all;
  }

  /** The streams that have ended, or had no echo since a time of `performance.now()`. */
  loss(router: RouterPod, sinceMs: number): Omit<RouterLoss, "router" | "connects" | "failed"> {
    const isOwn = (stream: Stream): boolean => isOf(router, stream);
    const own = this.all.filter(isOwn);
    const ended = this.all.filter((stream) => !stream.hasEchoedSince(sinceMs));
    return {
      streams: this.all.length,
      own: own.length,
      ownEnded: ended.filter(isOwn).length,
      othersEnded: ended.filter((stream) => !isOwn(stream)).length,
    };
  }

  [Symbol.dispose](): void {
    for (const stream of this.all) stream[Symbol.dispose]();
  }
}

/** Opens {@link STREAMS} streams. Rejects with `InsideError`. */
export async function openStreams({ clients, address }: Pair, options: Options): Promise<Streams> {
  const opened = await Promise.allSettled(
    Array.from({ length: STREAMS }, (_, at) => {
      const client = clients[at % clients.length];
      if (client === undefined) throw new Error("the Egress has clients");
      return Stream.open({ path: client.netns }, address, options);
    }),
  );
  const streams = new Streams(opened.flatMap((one) => (one.status === "fulfilled" ? one.value : [])));
  const failed = opened.find((one) => one.status === "rejected");
  if (failed === undefined) return streams;
  streams[Symbol.dispose]();
  throw failed.reason;
}

/** Begins connects of all clients. */
export function loadOf({ clients, address }: Pair, options: Options): ConnectLoad {
  const from = clients.map(({ netns: path }) => ({ path }));
  return new ConnectLoad({ from, address, perSecond: CONNECTS_PER_SECOND }, options);
}

/** Pure: the router with most streams. */
function busiest(routers: readonly RouterPod[], streams: readonly Stream[]): RouterPod {
  const countOf = ({ addresses }: RouterPod): number => streams.filter((stream) => isOf({ addresses }, stream)).length;
  const [router] = routers.toSorted((a, b) => countOf(b) - countOf(a));
  if (router === undefined) throw new LabError("not-reached", "the Egress pair has no router");
  return router;
}

/** A router whose node loses its power: nothing leaves or enters any more, and no program says goodbye. */
function powerOff(router: RouterPod): void {
  const kernel = openKernel();
  using netns = kernel.openNetNs({ path: router.netns });
  using stack = kernel.openStack(netns);
  const link = stack.links.get({ name: ROUTER_LINK });
  if (link === undefined) throw new LabError("not-reached", `router ${router.name} has no ${ROUTER_LINK}`);
  stack.links.set(link.index, { up: false });
  for (const pid of processesIn(new Set([`net:[${netns.inode}]`]))) process.kill(pid, "SIGKILL");
}

/** Waits until every client keeps its router: the Service has affinity by client, and the node's proxy has it too. Returns the routers' addresses. */
async function untilSticky({ clients, address }: Pair, options: Options): Promise<readonly string[]> {
  const sourcesOf = async ({ netns: path }: ClientPod): Promise<readonly string[]> => {
    const sources = new Set<string>();
    for (let at = 0; at < STICKY; at += 1) {
      const seen = await seenSource({ path }, address, { ...options, timeoutMs: ANSWER_MS });
      sources.add("source" in seen ? seen.source : seen.error);
    }
    return [...sources];
  };
  const all = await poll(() => Promise.all(clients.map(sourcesOf)), {
    until: (found) => found.every(({ length }) => length === 1),
    everyMs: LOOK_MS,
    deadlineMs: PODS_MS,
    signal: options.signal,
    clock: systemClock,
  });
  if (all.some(({ length }) => length > 1))
    throw new LabError(
      "not-reached",
      "clients of the Egress pair change their router, though its affinity is ClientIP",
    );
  return all.flat();
}

/** Pure: whether a connection came from a router. */
export function isOf(
  { addresses }: Pick<RouterPod, "addresses">,
  seen: SourceSeen | { readonly source: string },
): boolean {
  return "source" in seen && addresses.some((address) => String(address) === seen.source);
}

/** Pure: tells connects that began after a drain and before the router was gone; times as of `performance.now()`, durations in milliseconds. */
export function isAtEnd(of: { readonly goneMs: number; readonly drainMs: number; readonly tookMs: number }) {
  const { goneMs, drainMs, tookMs } = of;
  return ({ startedMs }: Connect): boolean => startedMs >= goneMs + drainMs && startedMs <= goneMs + tookMs;
}

/** Pure: whether a connect had no answer. */
export function isFailed({ seen }: Connect): boolean {
  return "error" in seen;
}

/** Pure: the connects that failed, as text. */
export function failuresOf(connects: readonly Connect[], goneMs: number): readonly string[] {
  return connects.flatMap(({ startedMs, tookMs, seen }) =>
    "error" in seen
      ? [`started ${seconds(startedMs - goneMs)} s after the router went, for ${seconds(tookMs)} s: ${seen.error}`]
      : [],
  );
}

/** Pure: milliseconds in seconds, to three digits. */
export function seconds(ms: number): number {
  return Number((ms / 1000).toFixed(3));
}
