/**
 * The tunnel with CONNECT clients on a UNIX socket, and gRPC clients for the dials that have Konnectivity beside them, TLS between server and agent, endpoints on loopback; beside plain TCP
 * through two splicing hops, without and with TLS between them (what Node's sockets and TLS cost without any tunnel), beside the same tunnel
 * built on @grpc/grpc-js (with TLS, and its window raised to ours), and beside Konnectivity's own programs if the folder of ISTHMUS_PEERS has
 * proxy-server and proxy-agent.
 *
 *     node bench/tunnel.ts [--json] [--rounds N] [--mib N] [--ms N]
 *
 * Each hop is a separate process, endpoints another, clients this one. Rounds go through the sides in turns; the figures
 * are medians. CPU and memory are those of both hops.
 */
import { type ChildProcess, fork } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { freePort } from "#test/ports";
import { GrpcClient, grpcDials } from "./tunnel.grpc-client.ts";
import { dials, download, finish, latency, open, serveEndpoints, upload } from "./tunnel.load.ts";
import { cpuSeconds, type Hops, type Mode, startPair, writeIdentity } from "./tunnel.pair.ts";
import {
  grpcAgent,
  grpcServer,
  type PeerOptions,
  plainAgent,
  plainServer,
  tlsAgent,
  tlsServer,
} from "./tunnel.peers.ts";

const PEER_NAMES = {
  plain: "plain TCP, two hops",
  tls: "Node's TLS and sockets, two hops",
  grpc: "@grpc/grpc-js tunnel",
  go: "Konnectivity",
} as const;
type Peer = keyof typeof PEER_NAMES;
type Side = "ours" | Peer;
/** The folder of Konnectivity's programs. */
const GO = process.env["ISTHMUS_PEERS"] ?? "";
const HAS_GO = ["proxy-server", "proxy-agent"].every((name) => GO !== "" && existsSync(join(GO, name)));
const PEERS: readonly Peer[] = HAS_GO ? ["plain", "tls", "grpc", "go"] : ["plain", "tls", "grpc"];
const SIDES: readonly Side[] = ["ours", ...PEERS];

const ROLES: Readonly<Record<string, (options: PeerOptions) => Promise<void>>> = {
  plainServer,
  plainAgent,
  tlsServer,
  tlsAgent,
  grpcServer,
  grpcAgent,
};
/** The programs of the peers that are here, in the order of their start. */
const ORDER = {
  plain: ["plainAgent", "plainServer"],
  tls: ["tlsAgent", "tlsServer"],
  grpc: ["grpcServer", "grpcAgent"],
} as const;

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

/** The sides that are programs of the tunnel. They alone have a mode. */
const PAIRS: readonly Side[] = HAS_GO ? ["ours", "go"] : ["ours"];

async function startSide(
  side: Side,
  { folder, tls, mode }: { readonly folder: string; readonly tls: PeerOptions["tls"]; readonly mode: Mode },
): Promise<Hops> {
  const options = { uds: join(folder, `${side}-${mode}.sock`), port: await freePort(), tls, mode };
  if (side === "ours") return startPair((name) => [join(import.meta.dirname, "../dist/isthmus"), name], options);
  if (side === "go") return startPair((name) => [join(GO, name)], options);
  const processes: ChildProcess[] = [];
  for (const name of ORDER[side]) processes.push((await role(name, options)).child);
  return { uds: options.uds, handshake: side === "grpc" ? "connect" : "plain", processes };
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
  /** Sides that are not comparable. */
  readonly without?: readonly Side[];
  /** Default: CONNECT. */
  readonly mode?: Mode;
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
      // It makes a TLS session for each dial.
      without: ["tls"],
      measure: ({ uds, handshake }, { echo }) => dials(uds, echo, handshake, 16, ms),
    },
    {
      name: "dial, echo, close over gRPC",
      unit: "1/s",
      betterIs: higher,
      mode: "grpc",
      without: ["plain", "tls", "grpc"],
      measure: ({ uds }, { echo }) => grpcDials(uds, echo, 16, ms),
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
    const tls = await writeIdentity(folder);
    const endpoints = await role<Ports>("endpoints", {});
    children.push(endpoints.child);
    const hops: Record<Mode, Partial<Record<Side, Hops>>> = { grpc: {}, "http-connect": {} };
    // The first connection is slow, because caches are empty.
    for (const side of SIDES) {
      const one = await startSide(side, { folder, tls, mode: "http-connect" });
      children.push(...one.processes);
      await finish(await open(one.uds, endpoints.told.echo, one.handshake));
      hops["http-connect"][side] = one;
    }
    for (const side of PAIRS) {
      const one = await startSide(side, { folder, tls, mode: "grpc" });
      children.push(...one.processes);
      await (await GrpcClient.open(one.uds, endpoints.told.echo)).close();
      hops.grpc[side] = one;
    }
    const wanted = figures(values.bytes, values.ms).filter(({ name }) => name.includes(values.only));
    const samples = new Map(
      wanted.map(({ name }) => [name, { ours: [], plain: [], tls: [], grpc: [], go: [] } as Record<Side, number[]>]),
    );
    for (let round = 0; round < values.rounds; round += 1) {
      for (const figure of wanted) {
        for (let at = 0; at < SIDES.length; at += 1) {
          const side = SIDES[(at + round) % SIDES.length] ?? "ours";
          const here = hops[figure.mode ?? "http-connect"][side];
          if (here === undefined || figure.without?.includes(side) === true) continue;
          samples.get(figure.name)?.[side].push(await figure.measure(here, endpoints.told));
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
  { name, unit, betterIs, without = [] }: Figure,
  samples: Readonly<Record<Side, readonly number[]>> | undefined,
): object[] {
  if (samples === undefined) return [];
  const mine = median(samples.ours);
  return PEERS.filter((side) => !without.includes(side)).map((side) => {
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
