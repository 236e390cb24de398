/**
 * The CONNECT proxy that ships beside Debian's tinyproxy and squid, and beside a direct connection: bytes a second of 1 and 32
 * streams, set-ups a second with 1 and 2 workers, their median and 99th percentile, CPU of the proxy for a GiB and for set-ups.
 *
 *     node bench/connect.ts [--json] [--rounds N] [--mib N] [--ms N]
 *
 * All in one run, in the namespaces of the uplinks' test bed: proxies and clients in the node, the server behind its uplink, each
 * a process of its own. Rounds go through the sides in turns; the figures are medians.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { Bed } from "../test/support/uplink-wan-bed.ts";
import { serve, setUps, transfer, type Way } from "./connect.load.ts";
import { missingPeers, type Side, startOurs, startSquid, startTinyproxy, stop } from "./connect.sides.ts";

const HOST = "203.0.113.80";
/**
 * The server has a port for each side, because ended connections occupy their source ports for a minute, separately for each destination.
 */
const SERVER_PORTS = { ours: 9000, ours2: 9001, tinyproxy: 9002, squid: 9003, direct: 9004 } as const;
/** Ticks of /proc/PID/stat in a second (USER_HZ). */
const TICKS = 100;
const SECOND_PORT = 5444;
const WARM_UP_MS = 4000;
/** Concurrent tunnels, as on a busy node. */
const AT_ONCE = 32;
/** Concurrent tunnels when the time of a set-up is measured: no queue forms. */
const AT_ONCE_QUIET = 2;

type Name = "ours" | "ours2" | "tinyproxy" | "squid" | "direct";
type Sides = Readonly<Record<Exclude<Name, "direct">, Side>>;

/** One case: its sides, and its figures. */
interface Case {
  readonly name: string;
  readonly unit: string;
  readonly betterIs: "higher" | "lower";
  readonly figure: string;
  readonly ours: Name;
  readonly peers: readonly Name[];
}

const PEERS = ["tinyproxy", "squid", "direct"] as const;
const CASES: readonly Case[] = [
  { name: "1 stream", unit: "MiB/s", betterIs: "higher", figure: "rate1", ours: "ours", peers: PEERS },
  { name: "32 streams", unit: "MiB/s", betterIs: "higher", figure: "rate32", ours: "ours", peers: PEERS },
  { name: "32 streams, 2 workers", unit: "MiB/s", betterIs: "higher", figure: "rate32", ours: "ours2", peers: PEERS },
  { name: "set-ups, 1 worker", unit: "1/s", betterIs: "higher", figure: "setUps", ours: "ours", peers: PEERS },
  { name: "set-ups, 2 workers", unit: "1/s", betterIs: "higher", figure: "setUps", ours: "ours2", peers: PEERS },
  { name: "set-up, median", unit: "ms", betterIs: "lower", figure: "p50", ours: "ours", peers: PEERS },
  { name: "set-up, 99th percentile", unit: "ms", betterIs: "lower", figure: "p99", ours: "ours", peers: PEERS },
  {
    name: "CPU for 1000 set-ups",
    unit: "s",
    betterIs: "lower",
    figure: "cpuSetUps",
    ours: "ours",
    peers: ["tinyproxy", "squid"],
  },
  { name: "CPU for a GiB", unit: "s", betterIs: "lower", figure: "cpu", ours: "ours", peers: ["tinyproxy", "squid"] },
];

type Figures = Record<string, number>;

async function measure(bed: Bed, name: Name, sides: Sides, options: Options): Promise<Figures> {
  const side = name === "direct" ? undefined : sides[name];
  const way: Way = { host: HOST, port: SERVER_PORTS[name], proxyPort: side?.port };
  const bytes = options.mib * 2 ** 20;
  const client = (what: string, more: object): Promise<number[]> => inNode(bed, what, { way, ...more });
  const before = cpuOf(side);
  const [seconds1 = Number.NaN] = await client("transfer", { bytes, streams: 1 });
  const cpu = ((cpuOf(side) - before) * 1024) / options.mib;
  const [seconds32 = Number.NaN] = await client("transfer", { bytes, streams: 32 });
  const beforeSetUps = cpuOf(side);
  const many = await client("setUps", { ms: options.ms, atOnce: AT_ONCE });
  const cpuSetUps = ((cpuOf(side) - beforeSetUps) * 1000) / many.length;
  const few = (await client("setUps", { ms: options.ms, atOnce: AT_ONCE_QUIET })).sort((a, b) => a - b);
  return {
    rate1: options.mib / seconds1,
    rate32: options.mib / seconds32,
    cpu,
    cpuSetUps,
    setUps: many.length / (options.ms / 1000),
    p50: few[Math.floor(few.length / 2)] ?? Number.NaN,
    p99: few[Math.floor(few.length * 0.99)] ?? Number.NaN,
  };
}

/** Runs this file as a client in the node; resolves with what it prints. */
async function inNode(bed: Bed, role: string, options: object): Promise<number[]> {
  const words = [import.meta.filename, `--role=${role}`, `--options=${JSON.stringify(options)}`];
  const [file, args] = bed.inside(process.execPath, ...words);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  const printed = await text(child.stdout);
  const code = await ended;
  if (code !== 0) throw new Error(`the client for ${role} ended with ${code}`);
  return JSON.parse(printed) as number[];
}

/** Seconds of CPU that a proxy has used: all its threads. */
function cpuOf(side: Side | undefined): number {
  if (side === undefined) return Number.NaN;
  const stat = readFileSync(`/proc/${side.process.pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

interface Options {
  readonly rounds: number;
  readonly mib: number;
  readonly ms: number;
}

async function startServer(bed: Bed): Promise<ChildProcess> {
  const words = [import.meta.filename, "--role=serve"];
  const args = [`--net=${bed.wan0.netns.path}`, "--", process.execPath, ...words];
  const child = spawn("nsenter", args, { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise<void>((resolve, reject) => {
    child.stdout.once("data", () => resolve());
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
  });
  return child;
}

async function compare(options: Options) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-bench-connect-"));
  await using bed = await Bed.create();
  // The settings of a host that makes thousands of set-ups a second.
  bed.stack.sysctl.set("net/ipv4/ip_local_port_range", "1024 65535");
  bed.stack.sysctl.set("net/ipv4/tcp_tw_reuse", 1);
  const server = await startServer(bed);
  const running: Side[] = [];
  const keep = async (side: Promise<Side>): Promise<Side> => {
    const one = await side;
    running.push(one);
    return one;
  };
  try {
    const place = { bed, dir };
    const sides: Sides = {
      ours: await keep(startOurs(place, {})),
      ours2: await keep(startOurs(place, { port: SECOND_PORT, workers: 2 })),
      tinyproxy: await keep(startTinyproxy(place)),
      squid: await keep(startSquid(place)),
    };
    const names: readonly Name[] = ["ours", "tinyproxy", "squid", "ours2", "direct"];
    // A cold start is not measured: daemons run for months, and V8 has compiled our hot code after some ten thousand set-ups.
    for (const name of names) await measure(bed, name, sides, { ...options, mib: 32, ms: WARM_UP_MS });
    const samples = new Map<Name, Figures[]>(names.map((name) => [name, []]));
    for (let round = 0; round < options.rounds; round += 1) {
      for (let at = 0; at < names.length; at += 1) {
        const name = names[(at + round) % names.length] ?? "ours";
        samples.get(name)?.push(await measure(bed, name, sides, options));
      }
    }
    return { name: "connect", cases: CASES.flatMap((one) => rowsOf(one, samples)) };
  } finally {
    for (const side of running) await stop(side);
    server.kill("SIGKILL");
    rmSync(dir, { recursive: true, force: true });
  }
}

function rowsOf({ name, unit, betterIs, figure, ours, peers }: Case, samples: ReadonlyMap<Name, readonly Figures[]>) {
  const of = (side: Name): number => median((samples.get(side) ?? []).map((one) => one[figure] ?? Number.NaN));
  const mine = of(ours);
  return peers.map((peer) => ({
    case: name,
    ours: round(mine),
    peer: round(of(peer)),
    peerName: peer,
    unit,
    ratio: round(mine / of(peer)),
    betterIs,
  }));
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}

function print({ cases }: Awaited<ReturnType<typeof compare>>): void {
  for (const one of cases) {
    const what = `${one.case} (${one.unit}, ${one.betterIs} is better)`;
    console.log(
      `${what.padEnd(46)}${String(one.ours).padStart(10)}${String(one.peer).padStart(10)}  ${String(one.ratio).padEnd(8)}${one.peerName}`,
    );
  }
  console.log(`ratio ${cases[0]?.ratio} ${cases[0]?.peerName}`);
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    rounds: { type: "string", default: "5" },
    mib: { type: "string", default: "1024" },
    ms: { type: "string", default: "3000" },
    role: { type: "string", default: "compare" },
    options: { type: "string", default: "{}" },
  },
});
const [rounds = 1, mib = 1, ms = 1] = [values.rounds, values.mib, values.ms].map(Number);
const given = JSON.parse(values.options) as { way: Way; bytes: number; streams: number; ms: number; atOnce: number };
if (values.role === "serve") {
  await serve(HOST, Object.values(SERVER_PORTS));
  console.log("ready");
} else if (values.role === "transfer") {
  console.log(JSON.stringify([await transfer(given.way, given)]));
} else if (values.role === "setUps") {
  console.log(JSON.stringify(await setUps(given.way, given)));
} else if ([rounds, mib, ms].some((number) => !Number.isInteger(number) || number < 1)) {
  console.error("usage: node bench/connect.ts [--json] [--rounds N] [--mib N] [--ms N], whole numbers of at least 1");
  process.exitCode = 2;
} else if (missingPeers().length > 0) {
  console.error(`install the Debian packages first: ${missingPeers().join(" ")}`);
  process.exitCode = 2;
} else {
  const result = await compare({ rounds, mib, ms });
  if (values.json) console.log(JSON.stringify({ ...result, betterIs: "higher" }));
  else print(result);
}
