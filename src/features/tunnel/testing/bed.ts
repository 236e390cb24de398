/** A server, agents and endpoints in one process over loopback, for the tests of the tunnel. */
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Clock, systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { type Names, SystemNames } from "#base/names";
import type { UnixStream } from "#kernel/reactor";
import { listenTcp } from "#kernel/socket";
import { type Capability, MetadataKey, TUNNEL_METHODS } from "#wire/konnectivity";
import { AgentLink } from "../agent/agent-link.ts";
import type { AgentMetrics } from "../agent/metrics.ts";
import { DEFAULT_SETTINGS } from "../http2/windows.ts";
import type { AgentGate } from "../identity/agent-gate.ts";
import { openStream } from "../link/outgoing.ts";
import { BufferBudget } from "../mux/budget.ts";
import { MUX_DEFAULTS, type MuxOptions } from "../mux/options.ts";
import { parseAllowedDestination } from "../server/allowed-destination.ts";
import { UnixClient } from "../server/connect-client.ts";
import type { Listener } from "../server/listener.ts";
import type { ServerMetrics } from "../server/metrics.ts";
import { ProxyServer } from "../server/proxy-server.ts";
import { ReversePolicy } from "../server/reverse-policy.ts";
import type { Strategy } from "../server/strategies.ts";
import { UnixListener } from "../server/unix-listener.ts";
import { TunnelClient } from "./client.ts";

/** Gauges, which must return to zero, and counters, by name. */
export class Counts {
  readonly values = new Map<string, number>();

  add(name: string, change = 1): void {
    this.values.set(name, (this.values.get(name) ?? 0) + change);
  }

  get(name: string): number {
    return this.values.get(name) ?? 0;
  }

  server(): ServerMetrics {
    return {
      dialFailed: (reason) => this.add(`dialFailed ${reason}`),
      dialLatency: () => this.add("dials"),
      connectionDuration: () => this.add("connections"),
      pendingDials: (change) => this.add("pending", change),
      established: (change) => this.add("established", change),
      packet: (segment, type) => this.add(`${segment} ${type}`),
      streamError: (segment, code, type) => this.add(`${segment} ${code} ${type}`),
      frontendWrite: () => this.add("frontendWrites"),
      grpcConnections: (method, change) => this.add(method, change),
      httpConnections: (change) => this.add("http", change),
      fullReceiveChannels: (method, change) => this.add(method === "Connect" ? "full" : "unread", change),
      slowConsumerClosed: () => this.add("slow"),
      reverseDial: (result) => this.add(`reverse ${result}`),
      reverseConnections: (change) => this.add("reverseConnections", change),
      agentRefused: (reason) => this.add(`agentRefused ${reason}`),
      connectionRefused: (listener, reason) => this.add(`connectionRefused ${listener} ${reason}`),
    };
  }

  agent(): AgentMetrics {
    return {
      dialLatency: () => this.add("dials"),
      dialFailed: (reason) => this.add(`dialFailed ${reason}`),
      endpointConnections: (change) => this.add("endpoints", change),
      serverConnections: (count) => this.values.set("servers", count),
      knownServers: (count) => this.values.set("known", count),
      serverFailure: (direction) => this.add(direction),
      packet: (segment, type) => this.add(`${segment} ${type}`),
      streamError: (segment, code, type) => this.add(`${segment} ${code} ${type}`),
      reconnected: () => this.add("reconnects"),
      reverseAccepted: (target) => this.add(`accepted ${target}`),
      reverseFailed: (reason) => this.add(`reverseFailed ${reason}`),
      reverseConnections: (change) => this.add("reverseConnections", change),
      fullReceiveChannels: (change) => this.add("full", change),
    };
  }
}

/** Listens on a free port of loopback. */
export async function listen(server: Server, path?: string): Promise<number> {
  await new Promise<void>((resolve) => {
    if (path === undefined) server.listen(0, "127.0.0.1", resolve);
    else server.listen(path, resolve);
  });
  const address = server.address() as AddressInfo | string;
  return typeof address === "string" ? 0 : address.port;
}

const LOOPBACK = IpAddress.parse("127.0.0.1");

/**
 * A TCP endpoint of a test. `receiveBufferBytes`: size of the kernel's receive buffer of each connection; default: as large as the machine's
 * settings allow.
 */
export async function endpoint(
  onSocket: (socket: Socket) => void,
  receiveBufferBytes?: number,
): Promise<{ server: Server; port: number }> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on("error", () => undefined);
    onSocket(socket);
  });
  if (receiveBufferBytes === undefined) return { server, port: await listen(server) };
  const fd = listenTcp(LOOPBACK, 0, { receiveBufferBytes });
  await new Promise<void>((resolve) => void server.listen({ fd }, resolve));
  return { server, port: (server.address() as AddressInfo).port };
}

export interface BedOptions {
  readonly serverCapabilities?: ReadonlySet<Capability>;
  readonly agentCapabilities?: ReadonlySet<Capability>;
  readonly backendDialTimeoutMs?: number;
  /** Default: `default`. */
  readonly strategies?: readonly Strategy[];
  readonly slowConsumerGraceMs?: number;
  readonly names?: Names;
  readonly halfCloseTimeoutMs?: number;
  /** The destinations that agents may reach on the server's side; without them the reverse direction is off. */
  readonly allowedDestinations?: readonly string[];
  readonly reverseMaxConnections?: number;
  readonly agentAcceptRate?: number;
  /** The number of bytes that the server may buffer. Default: that of the server. */
  readonly maxBufferedBytes?: number;
  /**
   * Size of the receive buffer of each connection of an endpoint, in bytes. A test needs it that counts bytes which nobody reads: otherwise the
   * kernel takes as many of them as the machine's settings allow, tens of MiB on some machines.
   */
  readonly endpointBufferBytes?: number;
  /** The clock of the server's and the agents' connections. */
  readonly clock?: Clock;
  /** Rules about agents. No connection of the bed has a certificate: a test passes on what it wants agents to have proved. */
  readonly gate?: AgentGate;
}

const ALL: ReadonlySet<Capability> = new Set(["reverse/1", "half-close/1", "flow-control/1"]);

/** Plain HTTP/2 throughout; other tests cover TLS. */
export class Bed implements AsyncDisposable {
  readonly serverCounts = new Counts();
  readonly agentCounts = new Counts();
  readonly bugs: unknown[] = [];
  readonly proxy: ProxyServer;
  readonly agents: AgentLink[] = [];
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #listeners: Listener[] = [];
  readonly #folders: string[] = [];
  readonly #names: Names;
  #options: BedOptions;
  agentPort = 0;
  frontendPort = 0;
  connectPort = 0;

  private constructor(options: BedOptions) {
    this.#options = options;
    this.#names = options.names ?? new SystemNames({ clock: systemClock });
    this.proxy = new ProxyServer(
      {
        log: nullLogger,
        metrics: this.serverCounts.server(),
        onBug: (error) => this.bugs.push(error),
        reverse:
          options.allowedDestinations === undefined
            ? undefined
            : new ReversePolicy(
                { clock: systemClock, names: this.#names, log: nullLogger, metrics: this.serverCounts.server() },
                {
                  destinations: options.allowedDestinations.map(parseAllowedDestination),
                  limits: { maxConnections: options.reverseMaxConnections ?? 100, dialRate: 1000, dialTimeoutMs: 5000 },
                },
              ),
        clock: options.clock ?? systemClock,
        gate: options.gate,
      },
      {
        serverID: "server-1",
        serverCount: () => 1,
        strategies: options.strategies ?? ["default"],
        capabilities: options.serverCapabilities ?? ALL,
        backendDialTimeoutMs: options.backendDialTimeoutMs ?? 0,
        agentAcceptRate: options.agentAcceptRate,
        ...(options.maxBufferedBytes === undefined ? {} : { maxBufferedBytes: options.maxBufferedBytes }),
        halfCloseTimeoutMs: options.halfCloseTimeoutMs ?? 30_000,
        mux: muxOptions(options),
      },
    );
  }

  static async open(options: BedOptions = {}): Promise<Bed> {
    const bed = new Bed(options);
    const agents = bed.keep(createServer({ noDelay: true }));
    bed.proxy.serveAgents(agents, DEFAULT_SETTINGS);
    bed.agentPort = await listen(agents);
    const frontends = bed.keep(createServer({ noDelay: true }));
    bed.proxy.serveGrpcFrontends(frontends, DEFAULT_SETTINGS);
    bed.frontendPort = await listen(frontends);
    const connects = createServer({ allowHalfOpen: true, noDelay: true });
    bed.proxy.serveConnectFrontends(connects, "plain");
    bed.connectPort = await listen(bed.keep(connects));
    return bed;
  }

  /** Connects an agent. */
  async agent(agentID = "agent-1", identifiers = ""): Promise<AgentLink> {
    const capabilities = this.#options.agentCapabilities ?? ALL;
    const socket = await this.socket(this.agentPort);
    const stream = await openStream(
      {
        socket,
        path: TUNNEL_METHODS.connect,
        authority: "localhost",
        metadata: {
          [MetadataKey.agentID]: agentID,
          [MetadataKey.agentIdentifiers]: identifiers,
          [MetadataKey.capabilities]: [...capabilities].join(","),
        },
        timeoutMs: 5000,
        keepAliveMs: 0,
        clock: systemClock,
      },
      { signal: AbortSignal.timeout(5000) },
    );
    const shared = new Set(
      String(stream.headers[MetadataKey.capabilities] ?? "")
        .split(",")
        .filter((one): one is Capability => capabilities.has(one as Capability)),
    );
    const link = new AgentLink(
      String(stream.headers[MetadataKey.serverID]),
      stream,
      {
        log: nullLogger,
        clock: this.#options.clock ?? systemClock,
        budget: new BufferBudget(512 * 1024 * 1024),
        metrics: this.agentCounts.agent(),
        names: this.#names,
        capabilities: shared,
        onClosed: () => undefined,
        onBug: (error) => this.bugs.push(error),
      },
      { mux: muxOptions(this.#options), dialTimeoutMs: 5000, closeLingerMs: 10_000 },
    );
    this.agents.push(link);
    return link;
  }

  /** A UNIX socket for CONNECT clients; resolves with its path. */
  async connectPath(): Promise<string> {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-bed-"));
    this.#folders.push(folder);
    await this.listenOn(join(folder, "socket"), (stream) => this.proxy.serveConnectFrontend(new UnixClient(stream)));
    return join(folder, "socket");
  }

  /** Listens on the path of a UNIX socket. */
  async listenOn(path: string, onStream: (stream: UnixStream) => void): Promise<void> {
    this.#listeners.push(
      await UnixListener.open({ path, deleteExisting: false }, onStream, {
        log: nullLogger,
        clock: systemClock,
        onBug: (error) => this.bugs.push(error),
      }),
    );
  }

  /** An agent whose packets the test writes itself. */
  async rawAgent(agentID = "raw", capabilities: readonly Capability[] = [], identifiers = ""): Promise<TunnelClient> {
    return TunnelClient.open(await this.socket(this.agentPort), {
      path: TUNNEL_METHODS.connect,
      metadata: {
        [MetadataKey.agentID]: agentID,
        ...(identifiers === "" ? {} : { [MetadataKey.agentIdentifiers]: identifiers }),
        ...(capabilities.length === 0 ? {} : { [MetadataKey.capabilities]: capabilities.join(",") }),
      },
    });
  }

  async socket(port: number): Promise<Socket> {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true, noDelay: true });
    this.#sockets.add(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return socket;
  }

  /** Disposes the resource with the bed. */
  keep<S extends Server>(server: S): S {
    this.#servers.push(server);
    server.on("connection", (socket: Socket) => this.#sockets.add(socket));
    return server;
  }

  async endpoint(onSocket: (socket: Socket) => void): Promise<number> {
    const { server, port } = await endpoint(onSocket, this.#options.endpointBufferBytes);
    this.keep(server);
    return port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
    await Promise.all(this.#listeners.map((listener) => listener[Symbol.asyncDispose]()));
    for (const folder of this.#folders) rmSync(folder, { recursive: true, force: true });
  }
}

function muxOptions({ slowConsumerGraceMs = MUX_DEFAULTS.slowConsumerGraceMs }: BedOptions): MuxOptions {
  return { ...MUX_DEFAULTS, slowConsumerGraceMs };
}

/** Listens on an address of loopback, as an endpoint that takes connections; returns `HOST:PORT`. */
export async function endpointOn(bed: Bed, host: string): Promise<string> {
  const server = bed.keep(createServer((socket) => socket.on("error", () => undefined).resume()));
  await new Promise<void>((resolve) => void server.listen(0, host, resolve));
  return `${host}:${(server.address() as AddressInfo).port}`;
}
