/**
 * The tunnel over a far link: bytes a second of one and of eight connections, both ways, beside Konnectivity's own programs if the folder of ISTHMUS_PEERS has
 * proxy-server and proxy-agent, and beside plain TCP through two hops, over the same line.
 *
 *     node bench/tunnel-far.ts [--json] [--check] [--rounds 5] [--seconds 20] [--rtt 10,50,200] [--loss 0,0.01] [--flows 1,8] [--mtu 9000] [--sides ours,go,plain] [--ways down,up]
 *
 * Server and agent are in two network namespaces, with a line of that round trip, loss and largest packet between them. TLS between them, CONNECT clients on a UNIX socket. Rounds go
 * through the sides in turns, each on links of its own; the figures are medians. A run counts from its first byte, so the time in which windows grow counts too. With `--check` the exit code is 1
 * if a figure is below Konnectivity's, or below nine tenths of it with loss.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { inNetNs, type NetNs } from "#kernel/netns";
import { makeCertificates } from "#test/certificates";
import { FAR_ADDRESS, FarLine, NEAR_ADDRESS } from "#test/far-line";
import type { Handshake } from "./tunnel.load.ts";

type Side = "ours" | "go" | "plain";
type Way = "down" | "up";
type Tls = Readonly<Record<"ca" | "cert" | "key", string>>;

const GO = process.env["ISTHMUS_PEERS"] ?? "";
const HAS_GO = ["proxy-server", "proxy-agent"].every((name) => GO !== "" && existsSync(join(GO, name)));
const OURS = join(import.meta.dirname, "../dist/isthmus");
const CHUNK = Buffer.alloc(64 * 1024, 0x5a);
const AGENT_PORT = 8091;
const HOP_PORT = 8092;
/**
 * The largest packets that real links have. With those of 65,000 bytes the first receive window of TCP holds one segment, so that one is under way in a round trip; BBR takes that for
 * the rate of the line, and what a sender with much to send gets over 200 ms is then 1 MB/s or 10, by chance.
 */
const MTU_BYTES = "9000";

/** Endpoints beside the agent: `source` sends for ever, `sink` counts. */
interface Ports {
  readonly source: number;
  readonly sink: number;
}

function pour(socket: Socket): void {
  const more = (): void => {
    let isTaken = true;
    while (isTaken && !socket.destroyed) isTaken = socket.write(CHUNK);
  };
  socket.on("drain", more);
  more();
}

async function listen(onSocket: (socket: Socket) => void): Promise<number> {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    onSocket(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

async function serveEndpoints(): Promise<void> {
  let sunk = 0;
  const source = await listen((socket) => socket.resume().once("data", () => pour(socket)));
  const sink = await listen((socket) => {
    socket.on("data", (bytes) => {
      sunk += bytes.length;
    });
  });
  process.on("message", () => process.send?.({ sunk }));
  process.send?.({ source, sink });
}

/** The hop beside the endpoints of plain TCP: reads `PORT\n`, connects, answers `\n`. */
function plainFar(): void {
  const server = createServer({ noDelay: true }, (client) => {
    client.on("error", () => client.destroy());
    client.once("data", (head: Buffer) => {
      client.pause();
      const end = connect(Number.parseInt(head.toString(), 10), "127.0.0.1", () => {
        client.write("\n");
        client.pipe(end).pipe(client);
      });
      end.on("error", () => client.destroy());
      end.on("close", () => client.destroy());
      client.on("close", () => end.destroy());
    });
  });
  server.listen(HOP_PORT, FAR_ADDRESS, () => process.send?.({}));
}

function plainNear(uds: string): void {
  const server = createServer({ noDelay: true }, (client) => {
    const hop = connect({ host: FAR_ADDRESS, port: HOP_PORT, noDelay: true });
    client.pipe(hop).pipe(client);
    client.on("error", () => hop.destroy());
    hop.on("error", () => client.destroy());
    client.on("close", () => hop.destroy());
  });
  server.listen(uds, () => process.send?.({}));
}

/** The programs on both ends of a line. */
class Stand implements AsyncDisposable {
  readonly uds: string;
  readonly handshake: Handshake;
  readonly #processes: readonly ChildProcess[];

  constructor(uds: string, handshake: Handshake, processes: readonly ChildProcess[]) {
    this.uds = uds;
    this.handshake = handshake;
    this.#processes = processes;
  }

  /** A connection, once the side works. */
  async open(port: number): Promise<Socket> {
    for (const deadline = performance.now() + 20_000; ; ) {
      try {
        return await openOnce(this.uds, port, this.handshake);
      } catch (error) {
        if (performance.now() > deadline) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#processes.map(end));
  }
}

/** Opens a connection through a side. Rejects if the side has no agent yet. */
async function openOnce(uds: string, port: number, handshake: Handshake): Promise<Socket> {
  const socket = connect(uds);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onLost = (): void => reject(new Error("the connection ended before it was open"));
  socket.on("error", onLost).on("end", onLost).on("close", onLost);
  socket.once("data", (head: Buffer) => {
    const answer = head.toString("latin1");
    if (handshake === "plain" || answer.startsWith("HTTP/1.1 200 ")) resolve();
    else reject(new Error(answer));
  });
  socket.write(handshake === "connect" ? `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\n\r\n` : `${port}\n`);
  try {
    await promise;
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

/** Starts this file in another role, in the namespace; resolves with its message once it is ready. */
async function role<T>(
  netns: { readonly fd: number },
  name: string,
  uds = "",
): Promise<{ child: ChildProcess; told: T }> {
  const child = inNetNs(netns, () => {
    const started = fork(import.meta.filename, [`--role=${name}`, `--uds=${uds}`], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    return { started };
  }).started;
  const [told] = (await once(child, "message")) as [T];
  return { child, told };
}

function startPair(line: FarLine, command: (name: string) => readonly string[], uds: string, tls: Tls): ChildProcess[] {
  const start = ({ path }: NetNs, name: string, flags: readonly string[]): ChildProcess =>
    spawn("nsenter", [`--net=${path}`, ...command(name), ...flags], { stdio: "ignore" });
  return [
    start(line.near, "proxy-server", [
      ...["--mode=http-connect", `--uds-name=${uds}`, "--server-port=0", "--delete-existing-uds-file"],
      ...[`--agent-bind-address=${NEAR_ADDRESS}`, `--agent-port=${AGENT_PORT}`],
      ...[`--cluster-cert=${tls.cert}`, `--cluster-key=${tls.key}`, `--cluster-ca-cert=${tls.ca}`],
      ...["--health-bind-address=127.0.0.1", "--health-port=8093", "--admin-port=8095"],
    ]),
    start(line.far, "proxy-agent", [
      ...[`--proxy-server-host=${NEAR_ADDRESS}`, `--proxy-server-port=${AGENT_PORT}`],
      ...[`--ca-cert=${tls.ca}`, `--agent-cert=${tls.cert}`, `--agent-key=${tls.key}`, "--sync-interval=200ms"],
      ...["--health-server-host=127.0.0.1", "--health-server-port=8093", "--admin-server-port=8095"],
    ]),
  ];
}

async function startSide(side: Side, line: FarLine, folder: string, tls: Tls): Promise<Stand> {
  const uds = join(folder, `${side}.sock`);
  await rm(uds, { force: true });
  if (side === "plain") {
    const far = await role(line.far, "plainFar");
    const near = await role(line.near, "plainNear", uds);
    return new Stand(uds, "plain", [far.child, near.child]);
  }
  const command = (name: string): readonly string[] => (side === "ours" ? [OURS, name] : [join(GO, name)]);
  return new Stand(uds, "connect", startPair(line, command, uds, tls));
}

interface Cell {
  readonly rtt: number;
  readonly loss: number;
  readonly flows: number;
  readonly way: Way;
  readonly mtu: number;
}

/** MB a second of one run. */
async function measure(side: Side, cell: Cell, seconds: number, folder: string, tls: Tls): Promise<number> {
  await using line = await FarLine.open({ roundTripMs: cell.rtt, loss: cell.loss, mtuBytes: cell.mtu });
  const { child, told: ports } = await role<Ports>(line.far, "endpoints");
  await using _endpoints = { [Symbol.asyncDispose]: () => end(child) };
  await using stand = await startSide(side, line, folder, tls);
  const sunk = async (): Promise<number> => {
    child.send({});
    const [{ sunk: bytes }] = (await once(child, "message")) as [{ sunk: number }];
    return bytes;
  };
  const sockets: Socket[] = [];
  let received = 0;
  for (let flow = 0; flow < cell.flows; flow += 1) {
    sockets.push(await stand.open(cell.way === "down" ? ports.source : ports.sink));
  }
  const started = performance.now();
  for (const socket of sockets) {
    socket.on("data", (bytes: Buffer) => {
      received += bytes.length;
    });
    socket.resume();
    if (cell.way === "down") socket.write("x");
    else pour(socket);
  }
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const bytes = cell.way === "down" ? received : await sunk();
  const tookMs = performance.now() - started;
  for (const socket of sockets) socket.destroy();
  return bytes / 1000 / tookMs;
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

async function compare(options: {
  readonly sides: readonly Side[];
  readonly cells: readonly Cell[];
  readonly rounds: number;
  readonly seconds: number;
  readonly onCell: (cell: Cell, figures: Readonly<Partial<Record<Side, number>>>) => void;
}): Promise<void> {
  const { sides, cells, rounds, seconds, onCell } = options;
  const folder = await mkdtemp(join(tmpdir(), "isthmus-bench-far-"));
  try {
    const { ca, pairs } = makeCertificates("bench", { both: [NEAR_ADDRESS] });
    const tls = { ca: join(folder, "ca.crt"), cert: join(folder, "tls.crt"), key: join(folder, "tls.key") };
    await Promise.all([
      writeFile(tls.ca, ca),
      writeFile(tls.cert, pairs.both.cert),
      writeFile(tls.key, pairs.both.key, { mode: 0o600 }),
    ]);
    for (const cell of cells) {
      const runs = new Map<Side, number[]>(sides.map((side) => [side, []]));
      for (let round = 0; round < rounds; round += 1) {
        for (const side of sides) runs.get(side)?.push(await measure(side, cell, seconds, folder, tls));
      }
      onCell(cell, Object.fromEntries(sides.map((side) => [side, median(runs.get(side) ?? [])])));
    }
  } finally {
    await rm(folder, { recursive: true });
  }
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    check: { type: "boolean", default: false },
    mtu: { type: "string", default: MTU_BYTES },
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "20" },
    rtt: { type: "string", default: "10,50,200" },
    loss: { type: "string", default: "0,0.01" },
    flows: { type: "string", default: "1,8" },
    ways: { type: "string", default: "down,up" },
    sides: { type: "string", default: HAS_GO ? "ours,go,plain" : "ours,plain" },
    role: { type: "string", default: "compare" },
    uds: { type: "string", default: "" },
  },
});
const numbers = (text: string): number[] => text.split(",").map(Number);
if (values.check && !HAS_GO) {
  console.error("--check needs ISTHMUS_PEERS, a folder with Konnectivity's proxy-server and proxy-agent");
  process.exit(2);
}
if (values.role === "endpoints") await serveEndpoints();
else if (values.role === "plainFar") plainFar();
else if (values.role === "plainNear") plainNear(values.uds);
else {
  const cells = numbers(values.rtt).flatMap((rtt) =>
    numbers(values.loss).flatMap((loss) =>
      numbers(values.flows).flatMap((flows) =>
        (values.ways.split(",") as Way[]).map((way): Cell => ({ rtt, loss, flows, way, mtu: Number(values.mtu) })),
      ),
    ),
  );
  const sides = values.sides.split(",") as Side[];
  const cases: object[] = [];
  if (!values.json) console.log(`${"MB/s".padEnd(44)}${sides.map((side) => side.padStart(9)).join("")}`);
  await compare({
    sides,
    cells,
    rounds: Number(values.rounds),
    seconds: Number(values.seconds),
    onCell: (cell, figures) => {
      const { rtt, loss, flows, way } = cell;
      cases.push({ ...cell, ...figures });
      if (values.check && (figures.ours ?? 0) < (loss === 0 ? 1 : 0.9) * (figures.go ?? Number.NaN))
        process.exitCode = 1;
      if (values.json) return;
      const what = `${rtt} ms, ${loss * 100} % loss, ${flows} connection${flows > 1 ? "s" : ""}, ${way === "down" ? "to the client" : "to the endpoint"}`;
      console.log(
        `${what.padEnd(52)}${sides.map((side) => (figures[side] ?? Number.NaN).toFixed(1).padStart(9)).join("")}`,
      );
    },
  });
  if (values.json) console.log(JSON.stringify({ name: "tunnel-far", unit: "MB/s", betterIs: "higher", cases }));
}
