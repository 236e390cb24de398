/**
 * The programs of the pod network that ship, in a cluster of 5,000 nodes, 150,000 pods and 20,000 blocks of both families: memory,
 * processor time, time to the first sync, time from a BlockRequest to its block, requests to the API server for each pod. Each figure has a
 * limit; the exit code is 1 if a figure exceeds its limit.
 *
 *     ./run bench scale [--json] [--nodes=N] [--pods=N] [--blocks=N] [--seconds=N] [--rounds=N]
 *
 * `coil-ipam-controller`, `coil-router` and one `coild` run as whole processes in the namespace of one node. The API server is the embedded
 * one, a separate process. `--seconds` is the length of the churn. Each round starts all programs again; a figure is the worst of all
 * rounds.
 */
import { readFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { parseArgs } from "node:util";
import { Semaphore, sleep, TaskGroup } from "#base/async";
import { openKernel } from "#kernel/net";
import { cpuOf, end } from "./cni-add.world.ts";
import type { Counts } from "./scale.api-server.ts";
import { churn, OurPods } from "./scale.churn.ts";
import { nodeName, type Sizes } from "./scale.objects.ts";
import { Askers } from "./scale.requests.ts";
import { openScaleWorld, type Program, type Running, type ScaleWorld } from "./scale.world.ts";
import { quantiles } from "./service-sync.measure.ts";

/** A kubelet's default for the pods of a node. */
const OUR_PODS = 110;
const MAIN_TABLE = 254;
const ROUTER_PROTOCOL = 31;
/** Requests that come at once when a cluster starts. */
const STORM = 1000;
const TIMEOUT_MS = 120_000;
const PROGRAMS = ["coil-ipam-controller", "coil-router", "coild"] as const satisfies readonly Program[];
/** The grace of the controller; it ends within the churn, so that blocks are collected in it. */
const CONTROLLER_FLAGS = ["--webhook-addr=none", "--node-gone-grace=30s"];

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    nodes: { type: "string", default: "5000" },
    pods: { type: "string", default: "150000" },
    blocks: { type: "string", default: "20000" },
    seconds: { type: "string", default: "60" },
    rounds: { type: "string", default: "1" },
  },
});
const sizes: Sizes = {
  nodes: numberOf("nodes"),
  pods: numberOf("pods"),
  blocks: numberOf("blocks"),
};
const stop = new AbortController();
const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(1_800_000)]);

interface Row {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  readonly budget?: number;
}

function numberOf(name: "nodes" | "pods" | "blocks" | "seconds" | "rounds"): number {
  const number = Number(values[name]);
  if (!Number.isInteger(number) || number < 1)
    throw new Error(`--${name}: "${values[name]}" is not a whole number from 1`);
  return number;
}

const say = (text: string): void => void (values.json || process.stderr.write(`${text} …\n`));

/** Peak and present memory of a process, in MiB. */
function memoryOf(pid: number): { readonly peakMiB: number; readonly privateMiB: number } {
  const kib = (file: string, key: string): number =>
    Number(new RegExp(`^${key}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/${file}`, "utf8"))?.[1] ?? 0);
  const privateKib = kib("smaps_rollup", "Private_Clean") + kib("smaps_rollup", "Private_Dirty");
  return { peakMiB: kib("status", "VmHWM") / 1024, privateMiB: privateKib / 1024 };
}

async function poll(what: string, condition: () => boolean): Promise<number> {
  const deadline = performance.now() + TIMEOUT_MS;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`${what}: not in ${TIMEOUT_MS / 1000} s`);
    await sleep(20, { signal });
  }
  return performance.now();
}

/** Starts the controller; the time until it has answered a request that existed before. */
async function startController(
  world: ScaleWorld,
  askers: Askers,
  node: string,
): Promise<{ readonly running: Running; readonly syncMs: number }> {
  const asked = askers.ask(node);
  const running = world.start("coil-ipam-controller", ...CONTROLLER_FLAGS);
  const { block, atMs } = await asked;
  await askers.giveBack(block);
  return { running, syncMs: atMs - running.startedMs };
}

/** Starts the router; the time until the kernel has a route to each block of the others. */
async function startRouter(world: ScaleWorld): Promise<{ readonly running: Running; readonly syncMs: number }> {
  const wanted = sizes.blocks * 2;
  const running = world.start("coil-router");
  const doneMs = await poll("the router's first sync", () => world.log("coil-router").includes('"routes changed"'));
  const kernel = openKernel();
  using netns = kernel.openNetNs({ name: world.node });
  using stack = kernel.openStack(netns);
  const found = ([4, 6] as const).flatMap((family) =>
    stack.routes.list({ family, table: MAIN_TABLE, protocol: ROUTER_PROTOCOL }),
  ).length;
  if (found < wanted) throw new Error(`coil-router: ${found} routes in the kernel, ${wanted} wanted`);
  return { running, syncMs: doneMs - running.startedMs };
}

/** Starts `coild`; the time until a pod has its link. */
async function startCoild(
  world: ScaleWorld,
  pods: OurPods,
): Promise<{ readonly running: Running; readonly syncMs: number }> {
  const running = world.start("coild", `--socket=${world.socket}`);
  await poll("coild's socket", () => world.log("coild").includes('"serving"'));
  await pods.add(0);
  return { running, syncMs: performance.now() - running.startedMs };
}

const requestsOf = (counts: Counts, program: Program): number =>
  Object.values(counts[program] ?? {}).reduce((sum, count) => sum + count, 0);

async function storm(askers: Askers): Promise<{ readonly seconds: number }> {
  const startedMs = performance.now();
  const slots = new Semaphore(200);
  const count = Math.min(STORM, sizes.nodes);
  const asked = Array.from({ length: count }, (_, at) => slots.run(() => askers.ask(nodeName(at)), { signal }));
  const blocks = (await Promise.all(asked)).map(({ block }) => block);
  const seconds = (performance.now() - startedMs) / 1000;
  await Promise.all(blocks.map((block) => slots.run(() => askers.giveBack(block), { signal })));
  return { seconds: seconds / count };
}

async function round(): Promise<Row[]> {
  const rows: Row[] = [];
  const row = (what: string, value: number, unit: string, budget?: number): void =>
    void rows.push({ what, value, unit, ...(budget === undefined ? {} : { budget }) });
  say(`making ${sizes.nodes} nodes, ${sizes.pods} pods, ${sizes.blocks} blocks`);
  await using world = await openScaleWorld(sizes, { pods: OUR_PODS, signal });
  say(`the API server has ${world.apiServerMiB.toFixed(0)} MiB`);
  const askers = new Askers(world.api, signal);
  const group = new TaskGroup(signal);
  group.spawn((at) => askers.run(at));
  const pods = new OurPods(world, signal);
  const done = group.wait();
  const failed = done.then(() => new Promise<never>(() => undefined));
  await Promise.race([failed, measure()]);
  group.abort(new DOMException("measured", "AbortError"));
  await done;
  return rows;

  async function measure(): Promise<void> {
    say("starting the programs");
    const controller = await startController(world, askers, nodeName(0));
    const router = await startRouter(world);
    const coild = await startCoild(world, pods);
    const running = {
      "coil-ipam-controller": controller.running,
      "coil-router": router.running,
      coild: coild.running,
    } satisfies Record<Program, Running>;
    row("first sync: coil-ipam-controller answers a BlockRequest", controller.syncMs / 1000, "s", 5);
    row("first sync: coil-router has all routes in the kernel", router.syncMs / 1000, "s", 5);
    row("first sync: coild has given a pod its link", coild.syncMs / 1000, "s", 5);
    for (const program of PROGRAMS) row(`processor, start: ${program}`, cpuOf(running[program].pid) / 1000, "s");

    say("filling our node");
    const { counts: empty } = await world.counts();
    const slots = new Semaphore(4);
    await Promise.all(pods.pick(OUR_PODS, "free").map((at) => slots.run(() => pods.add(at), { signal })));
    const { counts: full } = await world.counts();
    const added = OUR_PODS - 1;
    row(
      `requests a pod, ${OUR_PODS} pods on an empty node: coild`,
      (requestsOf(full, "coild") - requestsOf(empty, "coild")) / added,
      "",
    );

    say(`churn, ${values.seconds} s`);
    const cpuBefore = Object.fromEntries(PROGRAMS.map((program) => [program, cpuOf(running[program].pid)]));
    const { counts: before } = await world.counts();
    const loop = monitorEventLoopDelay({ resolution: 1 });
    loop.enable();
    const startedMs = performance.now();
    const churned = await churn({ world, askers, nodes: sizes.nodes, signal }, pods, numberOf("seconds"));
    const tookMs = performance.now() - startedMs;
    loop.disable();
    const { counts: after, stallMs } = await world.counts();
    const requests = (program: Program): number => requestsOf(after, program) - requestsOf(before, program);
    for (const program of PROGRAMS)
      row(
        `processor, churn: ${program}`,
        ((cpuOf(running[program].pid) - (cpuBefore[program] ?? 0)) / tookMs) * 100,
        "%",
      );
    const block = quantiles(churned.requestMs);
    row(`BlockRequest to block, p50 of ${churned.requestMs.length}`, block.p50, "ms");
    row("BlockRequest to block, p99", block.p99, "ms", 100);
    row("the API server's thread is busy, p99 of its waits", stallMs.p99, "ms");
    row("the bench's own thread is busy, p99 of its waits", loop.percentile(99) / 1e6, "ms");
    const add = quantiles(churned.addMs);
    row(`ADD, p50 of ${churned.ourPods}`, add.p50, "ms");
    row("ADD, p99", add.p99, "ms");
    const all = churned.ourPods + churned.otherPods;
    const perPod = requests("coild") / churned.ourPods;
    const shared = (requests("coil-ipam-controller") + requests("coil-router")) / all;
    row(`requests a pod: coild, ${churned.ourPods} pods`, perPod, "");
    row(`requests a pod: coil-ipam-controller and coil-router, ${all} pods`, shared, "");
    row("requests a pod, together", perPod + shared, "", 1.2);
    if (!values.json) for (const program of PROGRAMS) say(`${program}: ${differences(before, after, program)}`);

    say("many requests at once");
    const each = await storm(askers);
    row(`${Math.min(STORM, sizes.nodes)} BlockRequests at once, each`, each.seconds * 1000, "ms");
    let peaks = 0;
    for (const program of PROGRAMS) {
      const { peakMiB, privateMiB } = memoryOf(running[program].pid);
      row(`peak RSS: ${program}`, peakMiB, "MiB");
      row(`private memory: ${program}`, privateMiB, "MiB");
      peaks += peakMiB;
    }
    row("peak RSS of the three together", peaks, "MiB", 600);

    say("a new leader");
    const leadersSeen = (): number => world.log("coil-ipam-controller").split('"leader seen"').length;
    const seenBefore = leadersSeen();
    const standby = world.start(
      "coil-ipam-controller",
      ...CONTROLLER_FLAGS,
      "--metrics-addr=:9486",
      "--health-addr=:9487",
    );
    await poll("a second controller that waits", () => leadersSeen() > seenBefore);
    const leftMs = performance.now();
    await end(controller.running.child);
    const taken = await askers.ask(nodeName(1));
    row("a leader ends, until its successor answers a BlockRequest", (taken.atMs - leftMs) / 1000, "s");
    await askers.giveBack(taken.block);
    await end(standby.child);
    const again = await startController(world, askers, nodeName(2));
    row("coil-ipam-controller starts again, until it answers a BlockRequest", again.syncMs / 1000, "s", 5);
  }
}

/** The requests of a program, the most frequent first. */
function differences(before: Counts, after: Counts, program: Program): string {
  return Object.entries(after[program] ?? {})
    .map(([what, count]) => ({ what, count: count - (before[program]?.[what] ?? 0) }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count)
    .map(({ what, count }) => `${what} ${count}`)
    .join(", ");
}

/** The worst value of each figure. */
function worst(rounds: readonly (readonly Row[])[]): Row[] {
  const [first = []] = rounds;
  return first.map((one, at) => ({ ...one, value: Math.max(...rounds.map((rows) => rows[at]?.value ?? 0)) }));
}

for (const name of ["SIGINT", "SIGTERM"] as const)
  process.once(name, () => stop.abort(new DOMException(name, "AbortError")));
const rounds: Row[][] = [];
for (let at = 0; at < numberOf("rounds"); at += 1) rounds.push(await round());
const rows = worst(rounds);
const exceeded = rows.filter(({ value, budget }) => budget !== undefined && value > budget);
if (values.json)
  console.log(JSON.stringify({ name: "scale", sizes, rows, exceeded: exceeded.map(({ what }) => what) }));
else {
  console.log(`${sizes.nodes} nodes, ${sizes.pods} pods, ${sizes.blocks} blocks`);
  for (const { what, value, unit, budget } of rows) {
    const limit = budget === undefined ? "" : `  at most ${budget}${value > budget ? "  EXCEEDED" : ""}`;
    console.log(`${what.padEnd(80)}${value.toFixed(2).padStart(10)} ${unit.padEnd(4)}${limit}`);
  }
}
if (exceeded.length > 0) process.exitCode = 1;
