/**
 * The tunnel beside Konnectivity's own Go programs, `proxy-server` and `proxy-agent` in the folder named by ISTHMUS_PEERS: bytes, dials,
 * CPU and memory in both modes, and the time until connections work again after a program was killed.
 *
 *     node bench/tunnel-go.ts [--json] [--rounds N] [--mib N]
 *
 * TLS between server and agent, clients on a UNIX socket, endpoints in a process of their own. A dial is as an API server's: a connection
 * of its own.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { makeCertificates } from "#test/certificates";
import { freePort } from "#test/ports";
import { GrpcClient } from "./tunnel.grpc-client.ts";
import { serveEndpoints } from "./tunnel.load.ts";
import type { Mode } from "./tunnel.pair.ts";

type Ports = Awaited<ReturnType<typeof serveEndpoints>>;

/** A connection through a side, in any mode. */
interface Way {
  write(bytes: Uint8Array): void;
  /** Resolves when this number of bytes has come. */
  received(bytes: number): Promise<void>;
  destroy(): void;
}

async function openConnect(uds: string, port: number): Promise<Way> {
  const socket: Socket = connect(uds);
  await once(socket, "connect");
  socket.write(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  const [head] = (await once(socket, "data")) as [Buffer];
  if (!head.toString("latin1").startsWith("HTTP/1.1 200 ")) {
    socket.destroy();
    throw new Error(head.toString("latin1"));
  }
  let received = 0;
  let wanted = { bytes: 0, resolve: (): void => undefined };
  socket.on("error", () => socket.destroy());
  socket.on("data", (bytes: Buffer) => {
    received += bytes.length;
    if (received >= wanted.bytes) wanted.resolve();
  });
  return {
    write: (bytes) => void socket.write(bytes),
    received: (bytes) =>
      new Promise((resolve, reject) => {
        wanted = { bytes, resolve };
        socket.once("close", () => reject(new Error("closed")));
        if (received >= bytes) resolve();
      }),
    destroy: () => socket.destroy(),
  };
}

/** The words that start a program. */
type Command = (program: string) => readonly string[];

/** A server and its agents, of one make and in one mode. */
class Pair {
  readonly mode: Mode;
  readonly uds: string;
  readonly #command: Command;
  readonly #file: (name: string) => string;
  readonly #agentPort: number;
  readonly #health: number;
  server: ChildProcess | undefined;
  readonly agents: (ChildProcess | undefined)[] = [];

  private constructor(mode: Mode, init: { command: Command; file: (name: string) => string; ports: number[] }) {
    this.mode = mode;
    this.#command = init.command;
    this.#file = init.file;
    [this.#agentPort = 0, this.#health = 0] = init.ports;
    this.uds = init.file(`${this.#agentPort}.sock`);
  }

  static async start(mode: Mode, command: Command, file: (name: string) => string): Promise<Pair> {
    const pair = new Pair(mode, { command, file, ports: [await freePort(), await freePort()] });
    await pair.startServer();
    await pair.startAgent(0);
    return pair;
  }

  async startServer(): Promise<void> {
    this.server = this.#spawn("proxy-server", [
      ...[`--mode=${this.mode}`, `--uds-name=${this.uds}`, "--server-port=0", "--agent-bind-address=127.0.0.1"],
      ...[`--agent-port=${this.#agentPort}`, "--health-bind-address=127.0.0.1", `--health-port=${this.#health}`],
      ...[`--admin-port=${await freePort()}`, "--delete-existing-uds-file"],
      ...[`--cluster-cert=${this.#file("tls.crt")}`, `--cluster-key=${this.#file("tls.key")}`],
      `--cluster-ca-cert=${this.#file("ca.crt")}`,
    ]);
  }

  async startAgent(at: number): Promise<void> {
    this.agents[at] = this.#spawn("proxy-agent", [
      ...["--proxy-server-host=127.0.0.1", `--proxy-server-port=${this.#agentPort}`, `--agent-id=agent-${at}`],
      ...[
        "--health-server-host=127.0.0.1",
        `--health-server-port=${await freePort()}`,
        `--admin-server-port=${await freePort()}`,
      ],
      ...[
        `--ca-cert=${this.#file("ca.crt")}`,
        `--agent-cert=${this.#file("tls.crt")}`,
        `--agent-key=${this.#file("tls.key")}`,
      ],
    ]);
  }

  #spawn(program: string, flags: readonly string[]): ChildProcess {
    const [file = "", ...words] = this.#command(program);
    return spawn(file, [...words, ...flags], {
      stdio: "ignore",
    });
  }

  open(port: number): Promise<Way> {
    return this.mode === "grpc" ? GrpcClient.open(this.uds, port) : openConnect(this.uds, port);
  }

  /** Resolves with the milliseconds until an echo works. */
  async works(echo: number): Promise<number> {
    const started = performance.now();
    let last: unknown;
    for (; performance.now() - started < 30_000; ) {
      try {
        const way = await this.open(echo);
        way.write(Buffer.from("x"));
        await way.received(1);
        way.destroy();
        return performance.now() - started;
      } catch (error) {
        last = error;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    }
    throw new Error(`${this.mode}: nothing works after 30 s`, { cause: last });
  }

  get processes(): readonly ChildProcess[] {
    return [this.server, ...this.agents].filter((one) => one !== undefined);
  }

  stop(): void {
    for (const process of this.processes) process.kill("SIGKILL");
  }
}

async function kill(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

interface Figure {
  readonly name: string;
  readonly unit: string;
  readonly modes: readonly Mode[];
  readonly measure: (pair: Pair, ports: Ports, bytes: number) => Promise<number>;
}

const BOTH: readonly Mode[] = ["grpc", "http-connect"];

const FIGURES: readonly Figure[] = [
  {
    name: "bytes to the client",
    unit: "s",
    modes: BOTH,
    measure: async (pair, { source }, bytes) => {
      const way = await pair.open(source);
      const started = performance.now();
      way.write(Buffer.from(String(bytes)));
      await way.received(bytes);
      way.destroy();
      return (performance.now() - started) / 1000;
    },
  },
  {
    name: "dial, mean of 50 one after the other",
    unit: "ms",
    modes: BOTH,
    measure: async (pair, { echo }) => {
      let sum = 0;
      for (let at = 0; at < 50; at += 1) {
        const started = performance.now();
        const way = await pair.open(echo);
        sum += performance.now() - started;
        way.destroy();
      }
      return sum / 50;
    },
  },
  {
    name: "dial, mean of 200, 20 at once",
    unit: "ms",
    modes: BOTH,
    measure: async (pair, { echo }) => {
      let sum = 0;
      const one = async (): Promise<void> => {
        for (let at = 0; at < 10; at += 1) {
          const started = performance.now();
          const way = await pair.open(echo);
          sum += performance.now() - started;
          way.destroy();
        }
      };
      await Promise.all(Array.from({ length: 20 }, one));
      return sum / 200;
    },
  },
  {
    name: "processor of server and agent for a dial with echo, 16 at once",
    unit: "ms",
    modes: BOTH,
    measure: async (pair, { echo }) => {
      const one = async (): Promise<void> => {
        for (let at = 0; at < 50; at += 1) {
          const way = await pair.open(echo);
          way.write(Buffer.from("x"));
          await way.received(1);
          way.destroy();
        }
      };
      const before = await processorMs(pair);
      await Promise.all(Array.from({ length: 16 }, one));
      return ((await processorMs(pair)) - before) / 800;
    },
  },
  {
    name: "processor of server and agent for a GiB to the client",
    unit: "s",
    modes: BOTH,
    measure: async (pair, { source }, bytes) => {
      const before = await processorMs(pair);
      const way = await pair.open(source);
      way.write(Buffer.from(String(bytes)));
      await way.received(bytes);
      way.destroy();
      return ((await processorMs(pair)) - before) / 1000 / (bytes / 2 ** 30);
    },
  },
  {
    name: "after the agent is killed and started, until an echo works",
    unit: "ms",
    modes: ["http-connect"],
    measure: async (pair, { echo }) => {
      await kill(pair.agents[0]);
      await pair.startAgent(0);
      return pair.works(echo);
    },
  },
  {
    name: "after the server is killed and started, until an echo works",
    unit: "ms",
    modes: ["http-connect"],
    measure: async (pair, { echo }) => {
      await kill(pair.server);
      await pair.startServer();
      return pair.works(echo);
    },
  },
  {
    name: "peak RSS of the server so far",
    unit: "MiB",
    modes: BOTH,
    measure: async ({ server }) => peakMiB(server),
  },
  {
    name: "peak RSS of the agent so far",
    unit: "MiB",
    modes: BOTH,
    measure: async ({ agents }) => peakMiB(agents[0]),
  },
];

async function peakMiB(child: ChildProcess | undefined): Promise<number> {
  const status = await readFile(`/proc/${child?.pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
}

/** Time that a pair's programs have had a processor, in milliseconds. */
async function processorMs({ processes }: Pair): Promise<number> {
  const stats = await Promise.all(processes.map(({ pid }) => readFile(`/proc/${pid}/stat`, "utf8")));
  // proc(5): utime and stime, in ticks of 10 ms.
  return stats.reduce((sum, stat) => {
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return sum + 10 * (Number(fields[11]) + Number(fields[12]));
  }, 0);
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

async function compare(peers: string, options: { readonly rounds: number; readonly bytes: number }): Promise<object[]> {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-bench-go-"));
  const file = (name: string): string => join(folder, name);
  const endpoints = fork(import.meta.filename, ["--role=endpoints"], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
  const pairs: Pair[] = [];
  try {
    const [ports] = (await once(endpoints, "message")) as [Ports];
    const { ca, pairs: certificates } = makeCertificates("bench", { both: ["localhost", "127.0.0.1"] });
    const { cert, key } = certificates.both;
    await Promise.all([
      writeFile(file("ca.crt"), ca),
      writeFile(file("tls.crt"), cert),
      writeFile(file("tls.key"), key),
    ]);
    const isthmus = join(import.meta.dirname, "../dist/isthmus");
    const cases: object[] = [];
    for (const mode of BOTH) {
      const sides = {
        ours: await Pair.start(mode, (program) => [isthmus, program], file),
        go: await Pair.start(mode, (program) => [join(peers, program)], file),
      };
      pairs.push(sides.ours, sides.go);
      for (const side of [sides.ours, sides.go]) await side.works(ports.echo);
      for (const { name, unit, modes, measure } of FIGURES) {
        if (!modes.includes(mode)) continue;
        const samples: Record<"ours" | "go", number[]> = { ours: [], go: [] };
        for (let round = 0; round < options.rounds; round += 1) {
          for (const side of round % 2 === 0 ? (["ours", "go"] as const) : (["go", "ours"] as const)) {
            samples[side].push(await measure(sides[side], ports, options.bytes));
          }
        }
        const [ours, peer] = [median(samples.ours), median(samples.go)];
        cases.push({
          case: `${mode}: ${name}`,
          ours,
          peer,
          peerName: "Konnectivity",
          unit,
          ratio: ours / peer,
          betterIs: "lower",
        });
      }
      for (const side of [sides.ours, sides.go]) side.stop();
    }
    return cases;
  } finally {
    for (const pair of pairs) pair.stop();
    endpoints.kill("SIGKILL");
    await rm(folder, { recursive: true });
  }
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    rounds: { type: "string", default: "3" },
    mib: { type: "string", default: "100" },
    role: { type: "string", default: "compare" },
  },
});
const peers = process.env["ISTHMUS_PEERS"] ?? "";
if (values.role === "endpoints") {
  process.send?.(await serveEndpoints());
} else if (!existsSync(join(peers, "proxy-server")) || !existsSync(join(peers, "proxy-agent"))) {
  console.error("ISTHMUS_PEERS names no folder with Konnectivity's proxy-server and proxy-agent");
  process.exit(2);
} else {
  const cases = await compare(peers, { rounds: Number(values.rounds), bytes: Number(values.mib) * 2 ** 20 });
  if (values.json) console.log(JSON.stringify({ name: "tunnel-go", betterIs: "lower", cases }));
  else {
    for (const one of cases as { case: string; ours: number; peer: number; unit: string; ratio: number }[]) {
      const figures = [one.ours, one.peer, one.ratio].map((value) => value.toPrecision(3).padStart(9)).join("");
      console.log(`${`${one.case} (${one.unit})`.padEnd(76)}${figures}`);
    }
    const [first] = cases as { ratio: number; peerName: string }[];
    console.log(`ratio ${first?.ratio.toPrecision(3)} ${first?.peerName}`);
  }
}
