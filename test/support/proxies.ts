/**
 * The tunnel's programs as a user runs them, on ports of loopback, with certificates of their own cluster.
 *
 * Owns: starting `proxy-server` and `proxy-agent`, their endpoints, clients of both kinds of frontends. Does not know: what is
 * tested.
 *
 * ```ts
 * await using bed = await ProxyBed.open();
 * const server = await bed.server(["--mode=http-connect"]);
 * const agent = await bed.agent([server]);
 * const socket = await connectThrough(await server.dial(), `127.0.0.1:${port}`);
 * ```
 */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { IpAddress } from "#base/ip";
import { openNetNs } from "#kernel/netns";
import { openTcp } from "#kernel/socket";
import { makeCertificates } from "#test/certificates";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";
import { freePort } from "#test/ports";

/** A program that runs. */
export interface ProxyProcess {
  readonly running: Running;
  readonly healthPort: number;
  readonly adminPort: number;
  /** `STATUS BODY` of a path on the health port; `-` while the port does not answer. */
  health(path: string): Promise<string>;
  /**
   * A metric by its name without the prefix, with labels as they are printed; 0 if the metric is absent. Rejects if the port does not
   * answer.
   */
  metric(name: string): Promise<number>;
  /** Messages of the log. */
  readonly said: (message: string) => readonly Readonly<Record<string, unknown>>[];
  /** Sends a signal and waits for the end. */
  stop(signal?: NodeJS.Signals): Promise<Outcome>;
}

export interface ProxyServerProcess extends ProxyProcess {
  readonly agentPort: number;
  readonly udsPath: string;
}

/** The place in which a program runs: the name of a network namespace; the test's own if absent. */
export interface ProxyPlace {
  readonly netns?: string;
  /** Variables besides the test's own. */
  readonly env?: Readonly<Record<string, string>>;
}

const PREFIX = "konnectivity_network_proxy_";

/** One cluster: a folder with certificates, and the programs that a test starts; all end with it. */
export class ProxyBed implements AsyncDisposable {
  readonly folder: string;
  readonly #programs = new Set<Running>();
  readonly #servers = new Set<Server>();
  readonly #sockets = new Set<Socket>();

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** `hosts`: the names of the servers of this cluster, besides localhost. */
  static async open({ hosts = [] }: { readonly hosts?: readonly string[] } = {}): Promise<ProxyBed> {
    const bed = new ProxyBed(mkdtempSync(join(tmpdir(), "isthmus-proxies-")));
    const names = {
      server: ["localhost", "127.0.0.1", ...hosts],
      agent: [],
      frontend: [],
      expired: [],
      serverOnly: [],
    };
    const { ca, pairs } = makeCertificates("cluster", names, {
      expired: { expired: true },
      serverOnly: { usage: "serverAuth" },
    });
    bed.write("ca.crt", ca);
    for (const [name, { cert, key }] of Object.entries(pairs)) {
      bed.write(`${name}.crt`, cert);
      bed.write(`${name}.key`, key);
    }
    const stranger = makeCertificates("stranger", { stranger: ["localhost", "127.0.0.1"] });
    bed.write("stranger-ca.crt", stranger.ca);
    bed.write("stranger.crt", stranger.pairs.stranger.cert);
    bed.write("stranger.key", stranger.pairs.stranger.key);
    return bed;
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  write(name: string, content: string): string {
    writeFileSync(this.path(name), content);
    return this.path(name);
  }

  /** A server for frontends at a UNIX socket, and agents with certificates of the cluster; later flags take precedence. */
  async server(args: readonly string[] = [], place: ProxyPlace = {}): Promise<ProxyServerProcess> {
    const [agentPort, healthPort, adminPort] = [await freePort(), await freePort(), await freePort()];
    const udsPath = this.path(`frontend-${this.#programs.size}.sock`);
    const running = this.#run(place, [
      "proxy-server",
      ...[`--uds-name=${udsPath}`, "--server-port=0", `--agent-port=${agentPort}`, "--agent-bind-address=127.0.0.1"],
      ...[`--health-port=${healthPort}`, `--admin-port=${adminPort}`, "--health-bind-address=127.0.0.1"],
      ...[`--cluster-cert=${this.path("server.crt")}`, `--cluster-key=${this.path("server.key")}`],
      ...[`--cluster-ca-cert=${this.path("ca.crt")}`, ...args],
    ]);
    const server = { ...this.#proxy(running, place, healthPort, adminPort), agentPort, udsPath };
    await started(server);
    return server;
  }

  /** An agent of the cluster; other flags can replace its certificate. */
  async agent(
    servers: readonly { readonly agentPort: number }[],
    args: readonly string[] = [],
    place: ProxyPlace = {},
  ): Promise<ProxyProcess> {
    const [healthPort, adminPort] = [await freePort(), await freePort()];
    const running = this.#run(place, [
      "proxy-agent",
      ...servers.map(({ agentPort }) => `--proxy-server=127.0.0.1:${agentPort}`),
      ...[`--health-server-port=${healthPort}`, `--admin-server-port=${adminPort}`, "--health-server-host=127.0.0.1"],
      ...[`--ca-cert=${this.path("ca.crt")}`, `--agent-cert=${this.path("agent.crt")}`],
      ...[`--agent-key=${this.path("agent.key")}`, "--sync-interval=100ms", "--reconnect-jitter=100ms", ...args],
    ]);
    const agent = this.#proxy(running, place, healthPort, adminPort);
    await started(agent);
    return agent;
  }

  #run({ netns, env = {} }: ProxyPlace, args: readonly string[]): Running {
    const inside = netns === undefined ? [] : ["ip", "netns", "exec", netns];
    const variables = ["env", ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
    const running = start([...inside, ...variables, ISTHMUS, ...args], { timeoutMs: 300_000 });
    this.#programs.add(running);
    return running;
  }

  /** An endpoint on loopback. */
  async endpoint(onSocket: (socket: Socket) => void): Promise<number> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy());
      onSocket(socket);
    });
    this.#servers.add(server);
    await once(server.listen(0, "127.0.0.1"), "listening");
    const address = server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** An endpoint that echoes the received bytes. */
  echo(): Promise<number> {
    return this.endpoint((socket) => socket.pipe(socket));
  }

  /** A connection to a UNIX socket, closed with the bed. */
  async dial(path: string): Promise<Socket> {
    const socket = connect({ path, allowHalfOpen: true });
    this.#sockets.add(socket);
    socket.on("error", () => socket.destroy());
    await once(socket, "connect");
    return socket;
  }

  #proxy(running: Running, { netns }: ProxyPlace, healthPort: number, adminPort: number): ProxyProcess {
    const lines = (): Record<string, unknown>[] =>
      running
        .said()
        .split("\n")
        .filter((line) => line.startsWith("{") && line.endsWith("}"))
        .map((line): Record<string, unknown> => JSON.parse(line));
    const health = (path: string): Promise<string> =>
      netns === undefined ? fetchText(`http://127.0.0.1:${healthPort}${path}`) : fetchInside(netns, healthPort, path);
    return {
      running,
      healthPort,
      adminPort,
      health,
      metric: async (name) => metricOf(await health("/metrics"), name),
      said: (message) => lines().filter(({ msg }) => msg === message),
      stop: (signal = "SIGTERM") => {
        running.child.kill(signal);
        return running.ended;
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    for (const server of this.#servers) server.close();
    for (const { child } of this.#programs) child.kill("SIGKILL");
    await Promise.all([...this.#programs].map(({ ended }) => ended));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Rejects with the output of the program if it has ended. */
async function started({ running, said }: ProxyProcess): Promise<void> {
  const hasEnded = (): boolean => running.child.exitCode !== null;
  await until("it has started", () => said("started").length > 0 || hasEnded(), { seen: running.said });
  if (hasEnded()) throw new Error(`it ended: ${(await running.ended).stderr}`);
}

/** `STATUS BODY`; `-` if the port does not answer. */
export async function fetchText(url: string): Promise<string> {
  try {
    const answer = await fetch(url, { redirect: "manual" });
    return `${answer.status} ${await answer.text()}`;
  } catch (error) {
    if (error instanceof TypeError) return "-";
    throw error;
  }
}

async function fetchInside(netns: string, port: number, path: string): Promise<string> {
  const socket = await connectInside(netns, "127.0.0.1", port).catch((error: NodeJS.ErrnoException) => error.code);
  if (!(socket instanceof Socket)) return "-";
  socket.write(`GET ${path} HTTP/1.0\r\nConnection: close\r\n\r\n`);
  const [head = "", ...body] = (await text(socket)).split("\r\n\r\n");
  return `${head.split(" ")[1]} ${body.join("\r\n\r\n")}`;
}

/** A connection made in a network namespace. Rejects if connecting fails. */
export async function connectInside(netns: string, host: string, port: number): Promise<Socket> {
  using ns = openNetNs({ name: netns });
  const socket = new Socket({ fd: openTcp(IpAddress.parse(host).family, { netns: ns }), allowHalfOpen: true });
  socket.connect({ host, port });
  await once(socket, "connect");
  return socket;
}

function metricOf(text: string, name: string): number {
  if (!text.startsWith("200 ")) throw new Error(`cannot read ${name}: /metrics answered ${JSON.stringify(text)}`);
  const line = text.split("\n").find((one) => one.startsWith(`${PREFIX}${name} `));
  return line === undefined ? 0 : Number(line.split(" ").at(-1));
}

/** Sends CONNECT and resolves with the answer's head; later bytes stay in the socket. Rejects if the socket ends before. */
export async function connectThrough(socket: Socket, target: string): Promise<string> {
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  let head = Buffer.alloc(0);
  for (;;) {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) {
      if (socket.readableEnded || socket.destroyed)
        throw new Error(`the socket ended after ${JSON.stringify(String(head))}`);
      await moved(socket);
      continue;
    }
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) continue;
    const rest = head.subarray(end + 4);
    if (rest.length > 0) socket.unshift(rest);
    return head.subarray(0, end).toString("latin1");
  }
}

/** Writes bytes, and waits for the same number of bytes in return. */
export async function roundTrip(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  let got = "";
  while (got.length < text.length) {
    const chunk: Buffer | null = socket.read();
    if (chunk !== null) got += chunk.toString("latin1");
    else if (socket.readableEnded || socket.destroyed) throw new Error(`the socket ended after ${JSON.stringify(got)}`);
    else await moved(socket);
  }
  return got;
}

/** Resolves when the socket is readable or has ended. */
function moved(socket: Socket): Promise<void> {
  const events = ["readable", "end", "close"];
  const { promise, resolve } = Promise.withResolvers<void>();
  const told = (): void => resolve();
  for (const event of events) socket.once(event, told);
  return promise.finally(() => {
    for (const event of events) socket.off(event, told);
  });
}
