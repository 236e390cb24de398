/**
 * A profile of the tunnel's processor time: our two programs under Node's profiler, clients on a UNIX socket, TLS between server and
 * agent. Four loads, one after the other, each with programs of its own: bytes of one connection of CONNECT to the client, dials with an
 * echo over CONNECT, 16 at once, the same over gRPC, each with a session of its own, and echoes of 64 bytes over one connection.
 *
 *     node bench/tunnel-profile.ts [--json] [--mib N] [--ms N] [--folder FOLDER]
 *
 * The programs run from their source, so each function belongs to a module. A system call counts for the module that made it. V8 takes no
 * samples of what Node does between its calls of JavaScript, and of other threads: that is the time that a process had a processor (proc(5)),
 * less the samples. `--folder` keeps the profiles, which the developer tools of browsers open.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { freePort } from "#test/ports";
import { GrpcClient, grpcDials } from "./tunnel.grpc-client.ts";
import { dials, download, echoes, finish, open, serveEndpoints } from "./tunnel.load.ts";
import { type Hops, type Mode, processorOf, startPair, writeIdentity } from "./tunnel.pair.ts";

type Ports = Awaited<ReturnType<typeof serveEndpoints>>;
const ROOT = join(import.meta.dirname, "..");
/** Time between two samples, in microseconds. */
const INTERVAL_US = 250;

interface Load {
  readonly name: string;
  readonly mode: Mode;
  /** The unit of work, and how much of it was done. */
  readonly unit: string;
  readonly run: (hops: Hops, ports: Ports) => Promise<number>;
}

/** A node of a profile's tree of calls (https://chromedevtools.github.io/devtools-protocol/tot/Profiler/). */
interface Call {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string };
  readonly children?: readonly number[];
}

interface Profile {
  readonly nodes: readonly Call[];
  readonly samples: readonly number[];
  /** Microseconds since the sample before, the first since `startTime`. */
  readonly timeDeltas: readonly number[];
  /** Microseconds of the monotonic clock. */
  readonly startTime: number;
}

/** Modules by the beginning of their path from the root, the first that fits. */
const PARTS: readonly (readonly [string, string])[] = [
  ["src/wire/http2/", "HTTP/2 (wire/http2)"],
  ["src/wire/", "messages of gRPC (wire/grpc, wire/protobuf)"],
  ["src/features/tunnel/", "the tunnel (features/tunnel)"],
  ["src/kernel/", "own sockets: system calls and reactor (kernel)"],
  ["src/", "other modules of ours"],
  ["node:", "modules of Node: writes to TLS, streams, timers"],
  ["node_modules/", "libraries: metrics"],
];
const BETWEEN = "Node between its calls: receiving and decrypting TLS, other threads";

/** The part that a function belongs to; native code belongs to its caller's. `undefined`: no JavaScript ran. */
function partOf({ callFrame: { functionName, url } }: Call, caller: string | undefined): string | undefined {
  if (functionName === "(idle)" || functionName === "(program)") return undefined;
  if (functionName === "(garbage collector)") return "the collector of V8";
  if (url === "") return caller;
  const path = url.startsWith("file:") ? relative(ROOT, fileURLToPath(url)) : url;
  return PARTS.find(([start]) => path.startsWith(start))?.[1] ?? "other";
}

/** Microseconds of each part between two times of the monotonic clock, which are microseconds. */
function timesOf(
  { nodes, samples, timeDeltas, startTime }: Profile,
  [begin, end]: readonly [number, number],
): Map<string, number> {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parts = new Map<number, string | undefined>();
  const visit = (node: Call, caller: string | undefined): void => {
    const part = partOf(node, caller);
    parts.set(node.id, part);
    for (const id of node.children ?? []) {
      const child = byId.get(id);
      if (child !== undefined) visit(child, node.callFrame.url === "" ? caller : part);
    }
  };
  const [root] = nodes;
  if (root !== undefined) visit(root, undefined);
  const times = new Map<string, number>();
  let now = startTime;
  for (const [at, id] of samples.entries()) {
    const delta = timeDeltas[at] ?? 0;
    now += delta;
    const part = parts.get(id);
    if (part !== undefined && now >= begin && now <= end) times.set(part, (times.get(part) ?? 0) + delta);
  }
  return times;
}

async function readProfile(folder: string): Promise<Profile> {
  const [name, ...others] = (await readdir(folder)).filter((one) => one.endsWith(".cpuprofile"));
  if (name === undefined || others.length > 0) throw new Error(`${folder}: not exactly one profile`);
  return JSON.parse(await readFile(join(folder, name), "utf8")) as Profile;
}

async function endpoints(): Promise<{ readonly child: ChildProcess; readonly ports: Ports }> {
  const child = fork(import.meta.filename, ["--role=endpoints"], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
  const [ports] = (await once(child, "message")) as [Ports];
  return { child, ports };
}

interface Row {
  readonly load: string;
  readonly program: string;
  /** Seconds of the processor for a unit of work, and those of them in the kernel. */
  readonly seconds: number;
  readonly kernel: number;
  readonly unit: string;
  /** Seconds of each part for a unit of work, the longest first. */
  readonly parts: readonly { readonly part: string; readonly seconds: number }[];
}

async function profileOf(load: Load, folder: string, ports: Ports): Promise<readonly Row[]> {
  await mkdir(folder, { recursive: true });
  const names = ["proxy-server", "proxy-agent"];
  const command = (name: string): [string, ...string[]] => [
    process.execPath,
    // The launcher's option for programs that relay bytes.
    "--max-semi-space-size=1",
    "--cpu-prof",
    `--cpu-prof-interval=${INTERVAL_US}`,
    `--cpu-prof-dir=${join(folder, name)}`,
    join(ROOT, "src/programs/start/start.ts"),
    name,
  ];
  const uds = join(folder, "frontend.sock");
  const { mode } = load;
  const hops = await startPair(command, { uds, port: await freePort(), tls: await writeIdentity(folder), mode });
  try {
    if (mode === "grpc") await (await GrpcClient.open(uds, ports.echo)).close();
    else await finish(await open(uds, ports.echo, hops.handshake));
    const before = await Promise.all(hops.processes.map(processorOf));
    const begin = monotonicUs();
    const done = await load.run(hops, ports);
    const end = monotonicUs();
    const after = await Promise.all(hops.processes.map(processorOf));
    const ended = hops.processes.map((child) => once(child, "exit"));
    for (const child of hops.processes) child.kill("SIGTERM");
    await Promise.all(ended);
    return await Promise.all(
      names.map(async (program, at) => {
        const times = timesOf(await readProfile(join(folder, program)), [begin, end]);
        const sampled = [...times.values()].reduce((all, one) => all + one, 0);
        const kernel = (after[at]?.kernel ?? 0) - (before[at]?.kernel ?? 0);
        const user = (after[at]?.user ?? 0) - (before[at]?.user ?? 0);
        times.set(BETWEEN, 1e6 * (user + kernel) - sampled);
        const parts = [...times]
          .map(([part, us]) => ({ part, seconds: us / 1e6 / done }))
          .sort((one, other) => other.seconds - one.seconds);
        return {
          load: load.name,
          program,
          seconds: (user + kernel) / done,
          kernel: kernel / done,
          unit: load.unit,
          parts,
        };
      }),
    );
  } finally {
    for (const child of hops.processes) child.kill("SIGKILL");
  }
}

function monotonicUs(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

function print(rows: readonly Row[]): void {
  for (const { load, program, seconds, kernel, unit, parts } of rows) {
    const [all, of] = [seconds, kernel].map((value) => value.toPrecision(3));
    console.log(`${load}, ${program}: ${all} s of the processor for ${unit}, ${of} of them in the kernel`);
    for (const one of parts) {
      const share = `${((100 * one.seconds) / seconds).toFixed(0)} %`;
      console.log(`  ${one.seconds.toFixed(3)} s ${share.padStart(5)}  ${one.part}`);
    }
  }
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    mib: { type: "string", default: "2048" },
    ms: { type: "string", default: "10000" },
    folder: { type: "string", default: "" },
    role: { type: "string", default: "compare" },
  },
});
const [mib = 0, ms = 0] = [values.mib, values.ms].map(Number);
if (![mib, ms].every((number) => Number.isInteger(number) && number >= 1)) {
  console.error(
    "usage: node bench/tunnel-profile.ts [--json] [--mib N] [--ms N] [--folder FOLDER], whole numbers of at least 1",
  );
  process.exit(2);
}
if (values.role === "endpoints") {
  process.send?.(await serveEndpoints());
} else {
  const loads: readonly Load[] = [
    {
      name: "bytes of one connection to the client",
      mode: "http-connect",
      unit: "a GiB",
      run: async ({ uds, handshake }, { source }) => {
        await download(uds, source, handshake, 1, mib * 2 ** 20);
        return mib / 1024;
      },
    },
    {
      name: "dial, echo and close over CONNECT, 16 at once",
      mode: "http-connect",
      unit: "1,000 of them",
      run: async ({ uds, handshake }, { echo }) => ((await dials(uds, echo, handshake, 16, ms)) * ms) / 1e6,
    },
    {
      name: "dial, echo and close over gRPC, 16 at once",
      mode: "grpc",
      unit: "1,000 of them",
      run: async ({ uds }, { echo }) => ((await grpcDials(uds, echo, 16, ms)) * ms) / 1e6,
    },
    {
      name: "echoes of 64 bytes, one at a time",
      mode: "http-connect",
      unit: "1,000 of them",
      run: async ({ uds, handshake }, { echo }) => (await echoes(uds, echo, handshake, ms)) / 1000,
    },
  ];
  const folder = values.folder === "" ? await mkdtemp(join(tmpdir(), "isthmus-tunnel-profile-")) : values.folder;
  const { child, ports } = await endpoints();
  try {
    const rows: Row[] = [];
    for (const [at, load] of loads.entries())
      rows.push(...(await profileOf(load, join(folder, String(at + 1)), ports)));
    if (values.json) console.log(JSON.stringify({ name: "tunnel-profile", rows }));
    else print(rows);
  } finally {
    child.kill("SIGKILL");
    if (values.folder === "") await rm(folder, { recursive: true });
  }
}
