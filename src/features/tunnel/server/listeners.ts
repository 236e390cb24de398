import { createServer as createNetServer, type Server } from "node:net";
import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import type { Clock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { epollStreamsFault, type UnixStream } from "#kernel/reactor";
import type { SessionSettings } from "../http2/session.ts";
import { SocketTransport } from "../http2/transport.ts";
import { UnixTransport } from "../http2/unix-transport.ts";
import { DEFAULT_SETTINGS, FRONTEND_SETTINGS } from "../http2/windows.ts";
import { certificateFault, handshakeFault } from "../tls/client-fault.ts";
import { type ServerTls, serverTls } from "../tls/server-tls.ts";
import type { TlsPaths } from "../tls/tls-files.ts";
import { SocketClient, UnixClient } from "./connect-client.ts";
import { frontOf, type NewcomerLimits } from "./front.ts";
import { type Listener, SocketListener } from "./listener.ts";
import type { ProxyServer } from "./proxy-server.ts";
import type { Succession } from "./succession.ts";
import { UnixListener } from "./unix-listener.ts";
import { WaitingFrontends } from "./waiting-frontends.ts";

const DEFAULT_LIMITS: NewcomerLimits = { max: 1024 };

/** Normally an agent has one stream, and for a short time two. */
const AGENT_SETTINGS: SessionSettings = { ...DEFAULT_SETTINGS, maxConcurrentStreams: 16 };

/** The listener for frontends: a UNIX socket, one that the leader of this worker has opened, or TCP with mTLS. */
export type FrontendListen =
  | { readonly kind: "uds"; readonly path: string; readonly deleteExisting: boolean }
  | { readonly kind: "shared-uds"; readonly fd: number }
  | ({ readonly kind: "tcp" } & AgentListen);

/** The listener for agents. */
export interface AgentListen {
  readonly address: ListenAddress;
  readonly tls: TlsPaths;
  /** Workers of one program listen on the address together. */
  readonly isShared?: boolean;
}

/** Settings of TLS for both listeners. */
export interface ListenTlsOptions {
  /** IANA names; empty: the secure ones. */
  readonly cipherSuites: readonly string[];
  /** `VersionTLS10` to `VersionTLS13`; empty: 1.2. */
  readonly tlsMinVersion: string;
  /** Default: 1,024 connections, no balancer. */
  readonly newcomers?: NewcomerLimits;
}

export interface ListenersDeps {
  readonly proxy: ProxyServer;
  readonly log: Logger;
  readonly clock: Clock;
  /** Receives unexpected errors; they should end the program. */
  readonly onBug: (error: unknown) => void;
  /** Called when a client of a UNIX socket cannot be accepted, before it is refused. */
  readonly onShortage?: () => void;
  /** See `UnixListenerDeps`. */
  readonly onListener?: ((take: (fd: number) => void) => void) | undefined;
  /** The UNIX socket of frontends, unless workers share it. Default: its state is only logged. */
  readonly health?: HealthPart;
  /** The UNIX socket of frontends may be that of an earlier server, which hands it over. Default: that is an error. */
  readonly succession?: Succession | undefined;
}

/** Opens the port for agents. Rejects with `ListenerError`, `TlsFilesError`. */
export async function listenForAgents(
  deps: ListenersDeps,
  { address, tls: paths, isShared = false }: AgentListen,
  options: ListenTlsOptions,
): Promise<Listener> {
  const tls = tlsOf("agents", paths, ["h2"], deps, options);
  // Certificates are verified, and judged after the handshake: a client that is refused is told why.
  const server = createTlsServer({ ...tls.options, rejectUnauthorized: false, noDelay: true });
  const { server: front, newcomers } = frontOf(server, deps, options.newcomers ?? DEFAULT_LIMITS);
  const isBalancer = options.newcomers?.isBalancer;
  // Without an authority everybody passes TLS: a stream that was accepted shows the agent.
  if (paths.clientCa === undefined) {
    deps.proxy.serveAgents(server, AGENT_SETTINGS, { onAgent: (peer) => newcomers.known(peer), isShared: isBalancer });
  } else {
    server.on("secureConnection", (socket) => {
      if (certificateFault(socket) === undefined) newcomers.known(socket);
    });
    deps.proxy.serveAgents(server, AGENT_SETTINGS, { needsCertificate: true, isShared: isBalancer });
  }
  guard(server, tls, "agents", deps);
  return SocketListener.open(front, { kind: "tcp", address, isShared }, deps);
}

/** Opens the socket or port for frontends. Rejects with `ListenerError`, `SocketPathError`, `TlsFilesError`. */
export async function listenForFrontends(
  deps: ListenersDeps,
  frontend: FrontendListen,
  options: ListenTlsOptions & { readonly mode: "grpc" | "http-connect" },
): Promise<Listener> {
  const limits = options.newcomers ?? DEFAULT_LIMITS;
  const waiting = new WaitingFrontends(limits.max);
  if (frontend.kind === "shared-uds")
    return UnixListener.share(frontend.fd, streamHandler(deps, options.mode, waiting), deps);
  if (frontend.kind === "uds") {
    // Node's own sockets work on any runtime (decision 0006).
    return epollStreamsFault() === undefined
      ? UnixListener.open(frontend, streamHandler(deps, options.mode, waiting), deps)
      : SocketListener.open(plainServer(deps, options.mode, waiting), frontend, deps);
  }
  const isGrpc = options.mode === "grpc";
  const tls = tlsOf("frontends", frontend.tls, isGrpc ? ["h2"] : ["http/1.1"], deps, options);
  const server = isGrpc ? secureGrpc(deps, tls, limits) : secureConnect(deps, tls);
  const { server: front, newcomers } = frontOf(server, deps, limits, { allowHalfOpen: !isGrpc });
  server.on("secureConnection", (socket) => newcomers.known(socket));
  guard(server, tls, "frontends", deps);
  const { address, isShared = false } = frontend;
  return SocketListener.open(front, { kind: "tcp", address, isShared }, deps);
}

function streamHandler(
  { proxy }: ListenersDeps,
  mode: "grpc" | "http-connect",
  waiting: WaitingFrontends,
): (stream: UnixStream) => void {
  if (mode === "grpc") {
    return (stream) => {
      const onRequest = waiting.admit(stream);
      proxy.serveGrpcFrontend(new UnixTransport(stream), FRONTEND_SETTINGS, onRequest);
    };
  }
  return (stream) => {
    const onRequest = waiting.admit(stream);
    proxy.serveConnectFrontend(new UnixClient(stream), onRequest);
  };
}

function plainServer({ proxy }: ListenersDeps, mode: "grpc" | "http-connect", waiting: WaitingFrontends): Server {
  if (mode === "grpc") {
    return createNetServer({ noDelay: true }, (socket) => {
      const onRequest = waiting.admit(socket);
      proxy.serveGrpcFrontend(new SocketTransport(socket), FRONTEND_SETTINGS, onRequest);
    });
  }
  return createNetServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    const onRequest = waiting.admit(socket);
    proxy.serveConnectFrontend(new SocketClient(socket), onRequest);
  });
}

function secureGrpc({ proxy }: ListenersDeps, tls: ServerTls, { isBalancer }: NewcomerLimits): TlsServer {
  const server = createTlsServer({ ...tls.options, noDelay: true });
  proxy.serveGrpcFrontends(server, FRONTEND_SETTINGS, { isShared: isBalancer });
  return server;
}

function secureConnect({ proxy }: ListenersDeps, tls: ServerTls): TlsServer {
  const server = createTlsServer({ ...tls.options, allowHalfOpen: true, noDelay: true });
  proxy.serveConnectFrontends(server, "tls");
  return server;
}

function tlsOf(
  whom: string,
  paths: TlsPaths,
  alpn: readonly string[],
  { log, clock }: ListenersDeps,
  { cipherSuites, tlsMinVersion: minVersion }: ListenTlsOptions,
): ServerTls {
  return serverTls(
    { paths, alpn, cipherSuites, minVersion },
    {
      clock,
      onBroken: (why) =>
        log.warn("new certificate files cannot be used; the old files stay in use", { for: whom, why }),
      onReloaded: () => log.info("new certificate files are in use", { for: whom }),
    },
  );
}

/** Makes the certificates follow their files, and reports failed handshakes. */
function guard(server: TlsServer, tls: ServerTls, whom: "agents" | "frontends", { proxy, log }: ListenersDeps): void {
  tls.follow(server);
  server.on("tlsClientError", (error, socket) => {
    const peer = socket.remoteAddress;
    const fault = handshakeFault(error, socket);
    if (fault !== undefined) proxy.refusals[whom].note(fault.reason, { peer, text: fault.text });
    // Probes of balancers only connect.
    else log.debug("a client left during the TLS handshake", { from: whom, peer, reason: describeError(error) });
  });
}
