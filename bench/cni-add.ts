/**
 * ADD and DEL of the CNI executable that ships, served by the coild that ships, beside Debian's `ptp` with `host-local`:
 * whole processes, IPv4 and dual stack, one after the other and 100 at once.
 *
 *     node bench/cni-add.ts [--json] [--rounds N]
 *
 * The executables of both sides are put into folders of the benchmark first, as installers put them on a node. In the cold case they are
 * dropped from the page cache before each call, so that it reads them from the disk.
 *
 * Needs root and the Debian package containernetworking-plugins. Each round runs each side, in turns; the ratios are of
 * medians. Blocks are big and one resident pod keeps them on the node, so the figures do not include requests for blocks.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { isAbortError } from "#base/errors";
import { type Batch, type How, runBatch, runCall, type Side } from "./cni-add.calls.ts";
import { cpuOf, type Families, NAMESPACES, openWorld, timeApi, type World } from "./cni-add.world.ts";

const PEER = "ptp+host-local";
const PEER_DIR = "/usr/lib/cni";
const PARALLEL = 100;
/** Calls of one batch. The peer's dual-stack ADD takes seconds, so a batch has few calls. */
const SEQUENTIAL: Readonly<Record<Families, number>> = { ipv4: 10, dual: 2 };
const FAMILIES = ["ipv4", "dual"] as const;
const HOWS = ["sequential", "cold", "parallel"] as const;
const SHOWN: Readonly<Record<Families, string>> = { ipv4: "IPv4", dual: "dual stack" };

type Name = "ours" | "peer";
interface Run {
  readonly side: Name;
  readonly how: How;
  readonly families: Families;
  readonly add: Batch;
  readonly del: Batch;
  /** CPU time of coild and API server during the calls; 0 for the peer, which has no daemon. */
  readonly daemonMs: number;
}
interface Samples {
  readonly runs: readonly Run[];
  /** VERSION calls, which measure the start of the executable. */
  readonly starts: Readonly<Record<Name, readonly number[]>>;
  readonly apiMs: readonly number[];
  /** The time of coild's part of the sequential IPv4 ADDs, from its log. */
  readonly coildMs: readonly number[];
}

/** Puts the executables of both sides into folders of the benchmark, as they are on a node; returns the folders. */
function install(world: World): Record<Name, string> {
  const folders = { ours: join(world.dir, "bin-ours"), peer: join(world.dir, "bin-peer") };
  mkdirSync(folders.peer);
  // `ptp` looks for `host-local` in its own folder.
  for (const name of ["ptp", "host-local"]) copyFileSync(join(PEER_DIR, name), join(folders.peer, name));
  const dist = join(import.meta.dirname, "../dist");
  execFileSync(join(dist, "coil-installer"), ["--rescan-wait=0"], {
    stdio: ["ignore", "ignore", 2],
    env: {
      PATH: process.env["PATH"] ?? "",
      CNI_ETC_DIR: join(world.dir, "net.d"),
      CNI_BIN_DIR: folders.ours,
      COIL_PATH: join(dist, "cni/coil"),
      CNI_NETCONF: JSON.stringify({ name: "bench", plugins: [{ type: "coil", socket: world.socket }] }),
    },
  });
  // A file that was just written is not on the disk yet, so it cannot be dropped from the cache.
  execFileSync("sync");
  return folders;
}

function sidesOf(world: World): Record<Name, Record<Families, Side>> {
  const folders = install(world);
  const config = (name: string, content: object): string => {
    const path = join(world.dir, name);
    writeFileSync(path, JSON.stringify({ cniVersion: "1.0.0", name: "bench", ...content }));
    return path;
  };
  const path = (name: string): string => `/run/netns/${name}`;
  const ours = (families: Families): Side => ({
    executable: join(folders.ours, "coil"),
    config: config("ours.json", { type: "coil", socket: world.socket }),
    node: world.ourNode,
    pods: world.ourPods.map(path),
    args: (pod) => `IgnoreUnknown=1;K8S_POD_NAMESPACE=${NAMESPACES[families]};K8S_POD_NAME=pod-${pod}`,
  });
  const v4 = [{ subnet: "10.200.0.0/16" }];
  const ranges = { ipv4: [v4], dual: [v4, [{ subnet: "fd10:200::/112" }]] };
  const peer = (families: Families): Side => ({
    executable: join(folders.peer, "ptp"),
    config: config(`peer-${families}.json`, {
      type: "ptp",
      ipam: { type: "host-local", dataDir: join(world.dir, `leases-${families}`), ranges: ranges[families] },
    }),
    node: world.peerNode,
    pods: world.peerPods.map(path),
    args: () => "",
  });
  return {
    ours: { ipv4: ours("ipv4"), dual: ours("dual") },
    peer: { ipv4: peer("ipv4"), dual: peer("dual") },
  };
}

async function measure(world: World, rounds: number, signal: AbortSignal): Promise<Samples> {
  const sides = sidesOf(world);
  const out = join(world.dir, "out");
  mkdirSync(out);
  const options = { out: join(out, "result"), signal };
  // The last pods are the residents, one for each pool.
  for (const [at, families] of FAMILIES.entries()) {
    const side = sides.ours[families];
    const resident = { ...side, pods: side.pods.slice(PARALLEL + at), args: () => side.args(PARALLEL + at) };
    await runCall(resident, "ADD", { ...options, id: `resident-${families}` });
    await runCall(resident, "DEL", { ...options, id: `warm-up-${families}` });
  }
  const runs: Run[] = [];
  const starts: Record<Name, number[]> = { ours: [], peer: [] };
  const apiMs: number[] = [];
  const coildMs: number[] = [];
  const one = async (side: Name, how: How, families: Families, round: number): Promise<void> => {
    const count = how === "parallel" ? PARALLEL : SEQUENTIAL[families];
    const before = daemonCpu(world);
    const calls = servedBy(world).length;
    const batch = await runBatch(sides[side][families], how, count, { ...options, id: `${side}-${families}-${round}` });
    const daemonMs = side === "ours" ? daemonCpu(world) - before : 0;
    runs.push({ side, how, families, add: batch.ADD, del: batch.DEL, daemonMs });
    if (side === "ours" && how === "sequential" && families === "ipv4") {
      coildMs.push(...servedBy(world).slice(calls));
    }
  };
  for (let round = 0; round < rounds; round += 1) {
    // The order of the sides alternates, so that neither side always runs after the other.
    const order: readonly Name[] = round % 2 === 0 ? ["ours", "peer"] : ["peer", "ours"];
    for (const side of order) {
      for (let at = 0; at < 5; at += 1) {
        starts[side].push(await runCall(sides[side].ipv4, "VERSION", { ...options, id: "version" }));
      }
    }
    apiMs.push(...(await timeApi(world, 20, signal)));
    for (const families of FAMILIES) {
      for (const how of families === "ipv4" ? HOWS : (["sequential", "parallel"] as const)) {
        for (const side of order) await one(side, how, families, round);
      }
    }
  }
  // The first calls of a new client include the set-up of its connection.
  return { runs, starts, apiMs: apiMs.slice(5), coildMs };
}

function daemonCpu({ pids }: World): number {
  return cpuOf(pids.coild) + cpuOf(pids.apiServer) + cpuOf(pids.controller);
}

/** The durations of the ADDs so far, from coild's access log, in milliseconds. */
function servedBy(world: World): number[] {
  return readFileSync(world.coildLog, "utf8")
    .split("\n")
    .filter((line) => line.includes('"finished call"') && line.includes('"method":"Add"'))
    .map((line) => (JSON.parse(line) as { readonly seconds: number }).seconds * 1000);
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

const median = (values: readonly number[]): number => quantile(values, 0.5);
const round = (value: number): number => Number(value.toPrecision(3));

interface Spread {
  readonly n: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}
function spread(values: readonly number[]): Spread {
  const [p50, p90, p99] = [0.5, 0.9, 0.99].map((share) => round(quantile(values, share)));
  return { n: values.length, p50: p50 ?? 0, p90: p90 ?? 0, p99: p99 ?? 0 };
}

function report({ runs, starts, apiMs, coildMs }: Samples) {
  const of = (side: Name, how: How, families: Families): Run[] =>
    runs.filter((run) => run.side === side && run.how === how && run.families === families);
  const figures: { case: string; unit: string; values: (side: Name) => number[]; calls?: (side: Name) => number[] }[] =
    [];
  for (const families of FAMILIES) {
    for (const command of ["add", "del"] as const) {
      figures.push({
        case: `${command.toUpperCase()} ${SHOWN[families]}`,
        unit: "ms",
        values: (side) => of(side, "sequential", families).flatMap((run) => run[command].walls),
      });
    }
  }
  for (const command of ["add", "del"] as const) {
    figures.push({
      case: `${command.toUpperCase()} IPv4, executables not in the page cache`,
      unit: "ms",
      values: (side) => of(side, "cold", "ipv4").flatMap((run) => run[command].walls),
    });
  }
  for (const families of FAMILIES) {
    for (const command of ["add", "del"] as const) {
      figures.push({
        case: `${PARALLEL} ${command.toUpperCase()}s at once, ${SHOWN[families]}, until the last has ended`,
        unit: "ms",
        values: (side) => of(side, "parallel", families).map((run) => run[command].totalMs),
        calls: (side) => of(side, "parallel", families).flatMap((run) => run[command].walls),
      });
    }
  }
  for (const families of FAMILIES) {
    figures.push({
      case: `CPU of an ADD and its DEL, ${SHOWN[families]}, daemons included`,
      unit: "ms",
      values: (side) =>
        of(side, "sequential", families).map(
          (run) => (run.add.cpuMs + run.del.cpuMs + run.daemonMs) / run.add.walls.length,
        ),
    });
  }
  const cases = figures.map(({ case: name, unit, values }) => {
    const [ours, peer] = [median(values("ours")), median(values("peer"))];
    return { case: name, ours: round(ours), peer: round(peer), peerName: PEER, unit, ratio: round(ours / peer) };
  });
  const spreads = Object.fromEntries(
    figures.map(({ case: name, values, calls }) => [
      name,
      {
        ours: spread(values("ours")),
        peer: spread(values("peer")),
        ...(calls === undefined ? {} : { eachOfOurs: spread(calls("ours")), eachOfPeer: spread(calls("peer")) }),
      },
    ]),
  );
  const cpu = (side: Name) => {
    const own = of(side, "sequential", "ipv4");
    const calls = own.flatMap((run) => run.add.walls).length;
    const sum = (value: (run: Run) => number): number =>
      round(own.reduce((total, run) => total + value(run), 0) / calls);
    return { add: sum((run) => run.add.cpuMs), del: sum((run) => run.del.cpuMs), daemons: sum((run) => run.daemonMs) };
  };
  const whole = median(of("ours", "sequential", "ipv4").flatMap((run) => run.add.walls));
  const [start, coild, api] = [median(starts.ours), median(coildMs), median(apiMs)];
  const shares = {
    wholeMs: round(whole),
    startUp: { ms: round(start), how: "median VERSION call of the same executable" },
    rpc: { ms: round(whole - start - coild), how: "the whole, less start-up, less coild's part" },
    api: { ms: round(api), how: "median read of the pod by the same client, one at a time, in this process" },
    kernelAndRest: { ms: round(coild - api), how: "coild's part (`seconds` of its log, median) less the API's" },
  };
  const detail = {
    spreads,
    cpuMsPerCall: { ours: cpu("ours"), peer: cpu("peer") },
    peerStartUpMs: round(median(starts.peer)),
    shares,
  };
  return { name: "cni-add", betterIs: "lower", cases, detail };
}

function print({ cases, detail }: ReturnType<typeof report>): void {
  const line = (name: string, ...columns: (string | number)[]): void =>
    console.log(`${name.padEnd(60)}${columns.map((column) => String(column).padStart(10)).join("")}`);
  line("lower is better", "ours", "peer", "ratio");
  for (const { case: name, ours, peer, unit, ratio } of cases) line(`${name} (${unit})`, ours, peer, ratio);
  console.log("");
  line("spread, ms", "n", "p50", "p90", "p99");
  for (const [name, sides] of Object.entries(detail.spreads)) {
    for (const [side, { n, p50, p90, p99 }] of Object.entries(sides)) line(`${name}: ${side}`, n, p50, p90, p99);
  }
  console.log("");
  line("CPU of one call, IPv4, ms", "ADD", "DEL", "daemons");
  for (const [side, { add, del, daemons }] of Object.entries(detail.cpuMsPerCall)) line(side, add, del, daemons);
  console.log("");
  const { wholeMs, ...parts } = detail.shares;
  console.log(`where our IPv4 ADD of ${wholeMs} ms goes (the peer's own start-up: ${detail.peerStartUpMs} ms):`);
  for (const [part, { ms, how }] of Object.entries(parts)) {
    console.log(
      `  ${part.padEnd(14)}${String(ms).padStart(8)} ms  ${String(Math.round((ms / wholeMs) * 100)).padStart(3)} %  ${how}`,
    );
  }
  console.log(`ratio ${cases[0]?.ratio} ${PEER}`);
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { json: { type: "boolean" }, rounds: { type: "string", default: "5" } } });
  const rounds = Number(values.rounds);
  const fault =
    !Number.isInteger(rounds) || rounds < 1
      ? "usage: node bench/cni-add.ts [--json] [--rounds N], with a whole number of at least 1"
      : process.getuid?.() !== 0
        ? "cni-add makes network namespaces: run it as root"
        : !existsSync(join(PEER_DIR, "ptp"))
          ? `${PEER_DIR}/ptp is missing: apt-get install containernetworking-plugins`
          : undefined;
  if (fault !== undefined) {
    console.error(fault);
    return 2;
  }
  execFileSync(process.execPath, [join(import.meta.dirname, "../tools/build.ts")], { stdio: ["ignore", 2, 2] });
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => stop.abort());
  try {
    await using world = await openWorld(PARALLEL + FAMILIES.length, { signal: stop.signal });
    const result = report(await measure(world, rounds, stop.signal));
    if (values.json === true) console.log(JSON.stringify(result));
    else print(result);
    return 0;
  } catch (error) {
    if (!stop.signal.aborted || !isAbortError(error)) throw error;
    console.error("interrupted; everything is removed");
    return 130;
  }
}

process.exitCode = await main();
