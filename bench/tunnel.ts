/**
 * The tunnel with CONNECT clients on a UNIX socket, TLS between server and agent, endpoints on loopback; beside plain TCP
 * through two splicing hops, beside the same tunnel built on @grpc/grpc-js (with TLS, and its window raised to ours), and beside Konnectivity's
 * own programs if the folder of ISTHMUS_PEERS has proxy-server and proxy-agent.
 *
 *     node bench/tunnel.ts [--json] [--rounds N] [--mib N] [--ms N]
 *
 * Each hop is a separate process, endpoints another, clients this one. Rounds go through the sides in turns; the figures
 * are medians. CPU and memory are those of both hops.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { makeCertificates } from "#test/certificates";
import { freePort } from "#test/ports";
import { dials, download, finish, type Handshake, latency, open, serveEndpoints, upload } from "./tunnel.load.ts";
import { grpcAgent, grpcServer, type PeerOptions, plainAgent, plainServer } from "./tunnel.peers.ts";

const PEER_NAMES = {
  plain: "plain TCP, two hops",
  grpc: "@grpc/grpc-js tunnel",
  go: "Konnectivity",
} as const;
type Peer = keyof typeof PEER_NAMES;
type Side = "ours" | Peer;
/** The folder of Konnectivity's programs. */
const GO = process.env["ISTHMUS_PEERS"] ?? "";
const HAS_GO = ["proxy-server", "proxy-agent"].every((name) => GO !== "" && existsSync(join(GO, name)));
const PEERS: readonly Peer[] = HAS_GO ? ["plain", "grpc", "go"] : ["plain", "grpc"];
const SIDES: readonly Side[] = ["ours", ...PEERS];

const ROLES: Readonly<Record<string, (options: PeerOptions) => Promise<void>>> = {
  plainServer,
  plainAgent,
  grpcServer,
  grpcAgent,
};

interface Hops {
  readonly uds: string;
  readonly handshake: Handshake;
  readonly processes: readonly ChildProcess[];
}

/** Starts this file in another role; resolves with its message once it is ready. */
async function role<T>(name: string, options: object): Promise<{ readonly child: ChildProcess; readonly told: T }> {
  const child = fork(import.meta.filename, [`--role=${name}`, `--options=${JSON.stringify(options)}`], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const told = await new Promise<T>((resolve, reject) => {
    child.once("message", (message) => resolve(message as T));
    child.once("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
  });
  return { child, told };
}

/** Our programs, or those of Konnectivity, which have the same flags. `command`: the words that start a program. */
async function pair(command: (name: string) => readonly [string, ...string[]], options: PeerOptions): Promise<Hops> {
  const { uds, port, tls } = options;
  const start = (name: string, flags: readonly string[]): ChildProcess => {
    const [file, ...words] = command(name);
    return spawn(file, [...words, ...flags], { stdio: ["ignore", "ignore", "ignore"] });
  };
  const [serverHealth, agentHealth] = [await freePort(), await freePort()];
  const server = start("proxy-server", [
    "--mode=http-connect",
    `--uds-name=${uds}`,
    "--server-port=0",
    "--agent-bind-address=127.0.0.1",
    `--agent-port=${port}`,
    `--cluster-cert=${tls.cert}`,
    `--cluster-key=${tls.key}`,
    `--cluster-ca-cert=${tls.ca}`,
    "--health-bind-address=127.0.0.1",
    `--health-port=${serverHealth}`,
    `--admin-port=${await freePort()}`,
  ]);
  const agent = start("proxy-agent", [
    "--proxy-server-host=127.0.0.1",
    `--proxy-server-port=${port}`,
    `--ca-cert=${tls.ca}`,
    `--agent-cert=${tls.cert}`,
    `--agent-key=${tls.key}`,
    "--health-server-host=127.0.0.1",
    `--health-server-port=${agentHealth}`,
    `--admin-server-port=${await freePort()}`,
  ]);
  await untilReady(serverHealth, server);
  return { uds, handshake: "connect", processes: [server, agent] };
}

async function untilReady(port: number, child: ChildProcess): Promise<void> {
  for (const deadline = performance.now() + 15_000; performance.now() < deadline; ) {
    if (child.exitCode !== null) break;
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      (answer) => answer.ok,
      () => false,
    );
    if (ready) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${child.spawnfile}: the server was not ready within 15 s`);
}

async function startSide(side: Side, folder: string, tls: PeerOptions["tls"]): Promise<Hops> {
  const options: PeerOptions = { uds: join(folder, `${side}.sock`), port: await freePort(), tls };
  if (side === "ours") return pair((name) => [join(import.meta.dirname, "../dist/isthmus"), name], options);
  if (side === "go") return pair((name) => [join(GO, name)], options);
  const order = side === "plain" ? (["plainAgent", "plainServer"] as const) : (["grpcServer", "grpcAgent"] as const);
  const processes: ChildProcess[] = [];
  for (const name of order) processes.push((await role(name, options)).child);
  return { uds: options.uds, handshake: side === "plain" ? "plain" : "connect", processes };
}

/** CPU time of the hops so far, seconds (fields 14 and 15 of /proc/PID/stat, in ticks of 10 ms). */
async function cpuSeconds({ processes }: Hops): Promise<number> {
  const times = await Promise.all(
    processes.map(async ({ pid }) => {
      const stat = await readFile(`/proc/${pid}/stat`, "utf8");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      return (Number(fields[11]) + Number(fields[12])) / 100;
    }),
  );
  return times.reduce((sum, seconds) => sum + seconds, 0);
}

async function residentMiB({ processes }: Hops): Promise<number> {
  const sizes = await Promise.all(
    processes.map(async ({ pid }) => {
      const status = await readFile(`/proc/${pid}/status`, "utf8");
      return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
    }),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

interface Figure {
  readonly name: string;
  readonly unit: string;
  readonly betterIs: "lower" | "higher";
  readonly measure: (hops: Hops, ports: Ports) => Promise<number>;
}
type Ports = Awaited<ReturnType<typeof serveEndpoints>>;

function figures(bytes: number, ms: number): readonly Figure[] {
  const higher = "higher" as const;
  const lower = "lower" as const;
  const quantile =
    (bulk: number, which: "p50" | "p99"): Figure["measure"] =>
    async (hops, ports) =>
      (await latency(hops.uds, ports, hops.handshake, bulk, ms))[which];
  return [
    {
      name: "1 connection, to the client",
      unit: "MiB/s",
      betterIs: higher,
      measure: ({ uds, handshake }, { source }) => download(uds, source, handshake, 1, bytes),
    },
    {
      name: "1 connection, to the endpoint",
      unit: "MiB/s",
      betterIs: higher,
      measure: ({ uds, handshake }, { sink }) => upload(uds, sink, handshake, bytes),
    },
    {
      name: "32 connections, to the client",
      unit: "MiB/s",
      betterIs: higher,
      measure: ({ uds, handshake }, { source }) => download(uds, source, handshake, 32, Math.floor(bytes / 16)),
    },
    {
      name: "CPU per GiB, 1 connection",
      unit: "s",
      betterIs: lower,
      measure: async (hops, { source }) => {
        const before = await cpuSeconds(hops);
        await download(hops.uds, source, hops.handshake, 1, bytes);
        return ((await cpuSeconds(hops)) - before) / (bytes / 2 ** 30);
      },
    },
    {
      name: "dial, echo, close",
      unit: "1/s",
      betterIs: higher,
      measure: ({ uds, handshake }, { echo }) => dials(uds, echo, handshake, 16, ms),
    },
    { name: "64-byte echo p50", unit: "us", betterIs: lower, measure: quantile(0, "p50") },
    { name: "64-byte echo p99", unit: "us", betterIs: lower, measure: quantile(0, "p99") },
    { name: "64-byte echo p50 beside 16 bulk flows", unit: "us", betterIs: lower, measure: quantile(16, "p50") },
    { name: "64-byte echo p99 beside 16 bulk flows", unit: "us", betterIs: lower, measure: quantile(16, "p99") },
    { name: "RSS of both hops afterwards", unit: "MiB", betterIs: lower, measure: residentMiB },
  ];
}

async function compare(values: {
  readonly rounds: number;
  readonly bytes: number;
  readonly ms: number;
  readonly only: string;
}): Promise<object> {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-bench-tunnel-"));
  const children: ChildProcess[] = [];
  try {
    const { ca, pairs } = makeCertificates("bench", { both: ["localhost", "127.0.0.1"] });
    const tls = { ca: join(folder, "ca.crt"), cert: join(folder, "tls.crt"), key: join(folder, "tls.key") };
    await Promise.all([
      writeFile(tls.ca, ca),
      writeFile(tls.cert, pairs.both.cert),
      writeFile(tls.key, pairs.both.key, { mode: 0o600 }),
    ]);
    const endpoints = await role<Ports>("endpoints", {});
    children.push(endpoints.child);
    const hops = {} as Record<Side, Hops>;
    for (const side of SIDES) {
      hops[side] = await startSide(side, folder, tls);
      children.push(...hops[side].processes);
      // The first connection is slow, because caches are empty.
      await finish(await open(hops[side].uds, endpoints.told.echo, hops[side].handshake));
    }
    const wanted = figures(values.bytes, values.ms).filter(({ name }) => name.includes(values.only));
    const samples = new Map(
      wanted.map(({ name }) => [name, { ours: [], plain: [], grpc: [], go: [] } as Record<Side, number[]>]),
    );
    for (let round = 0; round < values.rounds; round += 1) {
      for (const figure of wanted) {
        for (let at = 0; at < SIDES.length; at += 1) {
          const side = SIDES[(at + round) % SIDES.length] ?? "ours";
          samples.get(figure.name)?.[side].push(await figure.measure(hops[side], endpoints.told));
        }
      }
    }
    return { name: "tunnel", cases: wanted.flatMap((figure) => casesOf(figure, samples.get(figure.name))) };
  } finally {
    for (const child of children) child.kill("SIGKILL");
    await rm(folder, { recursive: true });
  }
}

function casesOf(
  { name, unit, betterIs }: Figure,
  samples: Readonly<Record<Side, readonly number[]>> | undefined,
): object[] {
  if (samples === undefined) return [];
  const mine = median(samples.ours);
  return PEERS.map((side) => {
    const theirs = median(samples[side]);
    return {
      case: name,
      ours: round(mine),
      peer: round(theirs),
      peerName: PEER_NAMES[side],
      unit,
      ratio: round(mine / theirs),
      betterIs,
    };
  });
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}

function print(result: {
  readonly cases: readonly {
    readonly case: string;
    readonly ours: number;
    readonly peer: number;
    readonly peerName: string;
    readonly unit: string;
    readonly ratio: number;
    readonly betterIs: string;
  }[];
}): void {
  for (const one of result.cases) {
    const what = `${one.case} (${one.unit}, ${one.betterIs} is better)`;
    console.log(
      `${what.padEnd(66)}${String(one.ours).padStart(10)}${String(one.peer).padStart(10)}  ${String(one.ratio).padEnd(8)}${one.peerName}`,
    );
  }
  console.log(`ratio ${result.cases[0]?.ratio} ${result.cases[0]?.peerName}`);
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    rounds: { type: "string", default: "3" },
    mib: { type: "string", default: "512" },
    ms: { type: "string", default: "2000" },
    only: { type: "string", default: "" },
    role: { type: "string", default: "compare" },
    options: { type: "string", default: "{}" },
  },
});
const numbers = [values.rounds, values.mib, values.ms].map(Number);
if (numbers.some((number) => !Number.isInteger(number) || number < 1)) {
  console.error(
    "usage: node bench/tunnel.ts [--json] [--rounds N] [--mib N] [--ms N] [--only CASE], whole numbers of at least 1",
  );
  process.exit(2);
}
const [rounds = 1, mib = 1, ms = 1] = numbers;
if (values.role === "compare") {
  const result = await compare({ rounds, bytes: mib * 2 ** 20, ms, only: values.only });
  if (values.json) console.log(JSON.stringify({ ...result, betterIs: "lower" }));
  else print(result as Parameters<typeof print>[0]);
} else if (values.role === "endpoints") {
  process.send?.(await serveEndpoints());
} else {
  await ROLES[values.role]?.(JSON.parse(values.options) as PeerOptions);
  process.send?.("ready");
}
