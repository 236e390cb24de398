import { type AbortOptions, pause, poll } from "#base/async";
import { systemClock } from "#base/clock";
import { openConntrack } from "#kernel/conntrack";
import { openKernel } from "#kernel/net";
import { coilResources } from "#kube/coil";
import type { LabState } from "#lab/host";
import { failuresOf, isAtEnd, isFailed, isOf, loadOf, openStreams, type Pair, seconds } from "./egress-losses.ts";
import { editEgress, type RouterPod, waitForRouters } from "./egress-objects.ts";
import type { ScaleReport } from "./egress-report.ts";

const FEW = 1;
const MANY = 3;
const PODS_MS = 60_000;
/** The length of the load with each number of routers, in milliseconds. */
const LOAD_MS = 1500;
/** Streams have echoes five times a second. */
const SILENT_MS = 1000;
/** Resets within this time of the routers' own end are not counted as those of their drain, in milliseconds. */
const END_MS = 500;
/** The time after the end of a router's pod from which nothing of the router may be left, in milliseconds. */
const LEFT_MS = 5000;
const LOOK_MS = 50;
const UDP = 17;
const FAMILIES = [4, 6] as const;

type Options = AbortOptions & { readonly signal: AbortSignal };
type Nodes = LabState["nodes"];

/**
 * Scales an Egress from one router to three and back to one, under load and without affinity. The streams of routers that stay run on; those of drained ones
 * run until their router ends. Rejects with `KubeError`, `KernelError`, `InsideError`, `LabError`.
 */
export async function scaleRouters(pair: Pair, nodes: Nodes, options: Options): Promise<ScaleReport> {
  const { api, at } = pair;
  const scale = async (count: number): Promise<readonly RouterPod[]> => {
    await editEgress(api, at, { name: "pair", spec: { replicas: count, sessionAffinity: "None" } }, options);
    return waitForRouters(api, at, "pair", { ...options, deadlineMs: PODS_MS, count });
  };
  await scale(FEW);
  const linksBefore = linksOf(nodes);
  const clientsBefore = clientState(pair);
  using first = await openStreams(pair, options);
  const load = loadOf(pair, options);
  await pause(LOAD_MS, options);
  const upMs = performance.now();
  const many = await scale(MANY);
  const upSeconds = seconds(performance.now() - upMs);
  await pause(LOAD_MS, options);
  using second = await openStreams(pair, options);
  const downMs = performance.now();
  const draining = scale(FEW);
  draining.catch(() => undefined);
  await pause(at.drainMs - END_MS, options);
  const sinceMs = performance.now() - SILENT_MS;
  const streams = [...first.all, ...second.all];
  const endedEarly = streams.filter((stream) => !stream.hasEchoedSince(sinceMs)).length;
  const [stays] = await draining;
  const tookMs = performance.now() - downMs;
  await pause(LOAD_MS, options);
  const connects = await load.stop();
  const former = many.filter(({ name }) => name !== stays?.name);
  const goneMs = performance.now() - SILENT_MS;
  const isOwn = (source: { readonly source: string }): boolean => former.some((router) => isOf(router, source));
  const ended = streams.filter((stream) => !stream.hasEchoedSince(goneMs));
  const isLast = isAtEnd({ goneMs: downMs, drainMs: at.drainMs, tookMs });
  const later = connects.filter(({ startedMs }) => startedMs > upMs + upSeconds * 1000 && startedMs < downMs);
  const left = await untilNothingIsLeft({ pair, nodes, former, linksBefore, clientsBefore }, options);
  return {
    streams: streams.length,
    own: streams.filter(isOwn).length,
    ownEnded: ended.filter(isOwn).length,
    othersEnded: ended.length - ended.filter(isOwn).length,
    endedEarly,
    connects: connects.length,
    routersOfNew: many.filter((router) => later.some(({ seen }) => isOf(router, seen))).length,
    failed: failuresOf(
      connects.filter((one) => !isLast(one)),
      downMs,
    ),
    failedAtEnd: connects.filter((one) => isLast(one) && isFailed(one)).length,
    upSeconds,
    downSeconds: seconds(tookMs),
    left,
  };
}

interface Before {
  readonly pair: Pair;
  readonly nodes: Nodes;
  readonly former: readonly RouterPod[];
  readonly linksBefore: number;
  readonly clientsBefore: string;
}

function untilNothingIsLeft(before: Before, options: Options): Promise<readonly string[]> {
  return poll(() => leftOf(before, options), {
    until: (left) => left.length === 0,
    everyMs: LOOK_MS,
    deadlineMs: LEFT_MS,
    signal: options.signal,
    clock: systemClock,
  });
}

/** Returns the remains of routers that are gone, as text. */
async function leftOf(
  { pair, nodes, former, linksBefore, clientsBefore }: Before,
  options: Options,
): Promise<string[]> {
  const kernel = openKernel();
  const gone = new Set(former.flatMap(({ addresses }) => addresses.map(String)));
  const inNodes = nodes.flatMap(({ name, netns }) => {
    using space = kernel.openNetNs({ name: netns });
    using stack = kernel.openStack(space);
    using conntrack = openConntrack(space);
    const routes = FAMILIES.flatMap((family) => stack.routes.list({ family }));
    const flows = FAMILIES.flatMap((family) => conntrack.list({ family, protocol: UDP }));
    return [
      ...routes
        .filter(({ dst }) => gone.has(String(dst.base)))
        .map(({ dst, table }) => `${name}: route to ${dst} in ${table}`),
      // Those of the Service's address lead packets. Others, as of the tunnels' answers, have no NAT and end 30 s after the last packet.
      ...flows
        .filter(({ original, reply }) => gone.has(String(reply.src)) && !original.dst.equals(reply.src))
        .map(({ original, reply }) => `${name}: flow ${original.src} to ${original.dst}, answered by ${reply.src}`),
    ];
  });
  const { items: blocks } = await pair.api.listAll(coilResources.addressBlocks, options);
  const links = linksOf(nodes);
  return [
    ...inNodes,
    ...(links === linksBefore ? [] : [`${links} links on nodes, and ${linksBefore} before`]),
    ...blocks
      .filter(({ ipv4 = "" }) => gone.has(ipv4.replace("/32", "")))
      .map(({ metadata, ipv4 }) => `block ${metadata.name} of ${ipv4}`),
    ...(clientState(pair) === clientsBefore ? [] : ["links, rules or routes of clients changed"]),
  ];
}

function linksOf(nodes: Nodes): number {
  const kernel = openKernel();
  return nodes.reduce((sum, { netns }) => {
    using space = kernel.openNetNs({ name: netns });
    using stack = kernel.openStack(space);
    return sum + stack.links.list().length;
  }, 0);
}

/** Returns the state of clients. It does not change, since routers come and go behind the Service. */
function clientState({ clients }: Pair): string {
  const kernel = openKernel();
  return clients
    .map(({ netns: path }) => {
      using space = kernel.openNetNs({ path });
      using stack = kernel.openStack(space);
      const rules = FAMILIES.flatMap((family) => stack.rules.list(family));
      const routes = FAMILIES.flatMap((family) => [117, 118].flatMap((table) => stack.routes.list({ family, table })));
      return JSON.stringify([stack.links.list().map(({ name }) => name), rules, routes]);
    })
    .join("\n");
}
