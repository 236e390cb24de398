import type { Server, Socket } from "node:net";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { RateLimitedLog } from "#base/rate-limit";
import { type Capability, TUNNEL_METHODS } from "#wire/konnectivity";
import type { SessionSettings } from "../http2/session.ts";
import type { Transport } from "../http2/transport.ts";
import type { AgentGate } from "../identity/agent-gate.ts";
import { type IncomingOptions, serveStreams, serveStreamsOn } from "../link/incoming.ts";
import { Offenders, type OffendersOptions } from "../link/offenders.ts";
import { MAX_MESSAGE_BYTES } from "../link/packet-stream.ts";
import { BufferBudget } from "../mux/budget.ts";
import { MUX_DEFAULTS, type MuxOptions } from "../mux/options.ts";
import { AgentAcceptLimiter } from "./agent-accept-limiter.ts";
import type { AgentAuthenticator } from "./agent-auth.ts";
import { type AgentStreamDeps, type AgentStreamOptions, serveAgentStream } from "./agent-stream.ts";
import { Backends } from "./backends.ts";
import { type ConnectClient, SocketClient } from "./connect-client.ts";
import { serveConnectFrontend } from "./connect-frontend.ts";
import { ConnectionRefusals } from "./connection-refusals.ts";
import { Forwarder, type FrontendDeps } from "./forward.ts";
import { serveGrpcFrontend } from "./grpc-frontend.ts";
import type { ServerMetrics } from "./metrics.ts";
import type { ReversePolicy } from "./reverse-policy.ts";
import type { Strategy } from "./strategies.ts";

export interface ProxyServerOptions {
  readonly serverID: string;
  readonly serverCount: () => number;
  readonly strategies: readonly Strategy[];
  readonly capabilities: ReadonlySet<Capability>;
  readonly mux?: MuxOptions;
  /** Maximum of bytes that all connections together may buffer. Default 512 MiB. */
  readonly maxBufferedBytes?: number;
  readonly maxMessageBytes?: number;
  /** Limit of the time from DIAL_REQ to DIAL_RSP, in milliseconds. 0, the default: 60 s. */
  readonly backendDialTimeoutMs?: number;
  readonly halfCloseTimeoutMs?: number;
  readonly closeLingerMs?: number;
  /** Number of agents that are admitted in a second; the burst is twice this number; further agents wait. Default: no limit. */
  readonly agentAcceptRate?: number | undefined;
  /** Agents and frontends are sent a PING after this time without a byte, in milliseconds. Default 1 h. */
  readonly keepAliveMs?: number;
  readonly frontendKeepAliveMs?: number;
}

export interface ProxyServerDeps {
  readonly log: Logger;
  readonly metrics: ServerMetrics;
  readonly authenticator?: AgentAuthenticator | undefined;
  /** Rules about who may be which agent. Absent: an agent is what it says. */
  readonly gate?: AgentGate | undefined;
  readonly reverse?: ReversePolicy | undefined;
  readonly clock: Clock;
  /** Called after each stream of an agent that comes or goes. */
  readonly onBackendsChange?: (() => void) | undefined;
  /** Receives unexpected errors; they should end the program. */
  readonly onBug: (error: unknown) => void;
}

/** Shortest interval of a frontend's PINGs, as in Konnectivity, in milliseconds. A frontend that sends PINGs more often loses its session. */
const FRONTEND_MIN_PING_MS = 300_000;
/** Shortest interval of an agent's PINGs, in milliseconds. */
const AGENT_MIN_PING_MS = 30_000;

/** The time for which a connection may be without an accepted agent, in milliseconds: longer than an agent waits for its turn and its authentication. */
const MAX_UNUSED_MS = 90_000;

/** The server without its listeners: connects frontends with agents. */
export class ProxyServer {
  readonly backends: Backends;
  readonly forwarder: Forwarder;
  readonly budget: BufferBudget;
  /** For each port: the connections that it ends for a fault of the peer. */
  readonly refusals: { readonly agents: ConnectionRefusals; readonly frontends: ConnectionRefusals };
  readonly #deps: AgentStreamDeps;
  readonly #agentOptions: AgentStreamOptions;
  /** The collaborators of every frontend. */
  readonly #frontends: FrontendDeps;
  readonly #options: ProxyServerOptions;

  constructor(deps: ProxyServerDeps, options: ProxyServerOptions) {
    const { clock } = deps;
    this.#options = options;
    this.backends = new Backends(options.strategies, { onChange: deps.onBackendsChange });
    const mux = options.mux ?? MUX_DEFAULTS;
    this.budget = new BufferBudget(options.maxBufferedBytes ?? 512 * 1024 * 1024, {
      clock,
      graceMs: mux.slowConsumerGraceMs,
    });
    this.forwarder = new Forwarder(
      { backends: this.backends, clock, metrics: deps.metrics },
      {
        backendDialTimeoutMs: options.backendDialTimeoutMs ?? 0,
        halfCloseTimeoutMs: options.halfCloseTimeoutMs ?? 30_000,
        closeLingerMs: options.closeLingerMs,
      },
    );
    this.refusals = {
      agents: new ConnectionRefusals(deps, "agents"),
      frontends: new ConnectionRefusals(deps, "frontends"),
    };
    const { closeLingerMs } = options;
    this.#frontends = { forwarder: this.forwarder, metrics: deps.metrics, clock, closeLingerMs };
    this.#deps = {
      backends: this.backends,
      budget: this.budget,
      clock,
      metrics: deps.metrics,
      log: deps.log,
      refusals: new RateLimitedLog({ clock, log: deps.log }),
      authenticator: deps.authenticator,
      gate: deps.gate,
      acceptLimiter:
        options.agentAcceptRate === undefined
          ? undefined
          : new AgentAcceptLimiter(clock, { perSecond: options.agentAcceptRate }),
      reverse: deps.reverse,
      onBug: deps.onBug,
    };
    this.#agentOptions = {
      serverID: options.serverID,
      serverCount: options.serverCount,
      capabilities: options.capabilities,
      mux,
      closeLingerMs: options.closeLingerMs ?? 10_000,
    };
  }

  /**
   * Serves `AgentService` on a TCP or TLS server. `onAgent` is called with the `ADDRESS:PORT` of the connection of each agent that was accepted.
   * `needsCertificate`: agents without a verified certificate are told so and refused; default false.
   */
  serveAgents(
    server: Server,
    settings: SessionSettings,
    {
      onAgent = () => undefined,
      needsCertificate = false,
      isShared,
    }: {
      readonly onAgent?: (peer: string) => void;
      readonly needsCertificate?: boolean;
      /** Addresses of balancers. */
      readonly isShared?: ((address: string) => boolean) | undefined;
    } = {},
  ): void {
    serveStreams(server, {
      needsCertificate,
      onRefused: (reason, client) => this.refusals.agents.note(reason, client),
      onAccepted: ({ address, balancer = address }) => onAgent(balancer),
      settings: { ...settings, windows: this.budget.windows },
      path: TUNNEL_METHODS.connect,
      maxMessageBytes: this.#options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
      budget: this.budget,
      keepAliveMs: this.#options.keepAliveMs ?? 3_600_000,
      minPingIntervalMs: AGENT_MIN_PING_MS,
      maxUnusedMs: MAX_UNUSED_MS,
      clock: this.#deps.clock,
      offenders: new Offenders(this.#deps.clock, { isShared }),
      onStream: (stream) => {
        serveAgentStream(stream, this.#deps, this.#agentOptions).catch(this.#deps.onBug);
      },
    });
  }

  /** Serves `ProxyService` on a TCP, UNIX or TLS server. */
  serveGrpcFrontends(server: Server, settings: SessionSettings, { isShared }: OffendersOptions = {}): void {
    const offenders = new Offenders(this.#deps.clock, { isShared });
    serveStreams(server, { ...this.#grpcFrontends(settings), offenders });
  }

  /** Serves `ProxyService` on one connection. `onRequest` is called for each call. */
  serveGrpcFrontend(transport: Transport, settings: SessionSettings, onRequest?: () => void): void {
    serveStreamsOn(transport, this.#grpcFrontends(settings, onRequest));
  }

  #grpcFrontends(settings: SessionSettings, onRequest?: () => void): IncomingOptions {
    return {
      settings,
      path: TUNNEL_METHODS.proxy,
      maxMessageBytes: this.#options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
      budget: this.budget,
      keepAliveMs: this.#options.frontendKeepAliveMs ?? 3_600_000,
      minPingIntervalMs: FRONTEND_MIN_PING_MS,
      clock: this.#deps.clock,
      onRefused: (reason, client) => this.refusals.frontends.note(reason, client),
      onStream: (stream) => {
        onRequest?.();
        serveGrpcFrontend(stream, this.#frontends);
      },
    };
  }

  /** Serves HTTP CONNECT on a TCP or UNIX server, or a TLS one, made with `allowHalfOpen`. */
  serveConnectFrontends(server: Server, transport: "plain" | "tls"): void {
    server.on(transport === "tls" ? "secureConnection" : "connection", (socket: Socket) =>
      this.serveConnectFrontend(new SocketClient(socket)),
    );
  }

  /** Serves HTTP CONNECT on one connection. `onRequest` is called when its request has come, or was refused. */
  serveConnectFrontend(client: ConnectClient, onRequest?: () => void): void {
    serveConnectFrontend(client, this.#frontends, onRequest);
  }
}
