import { createServer, type Http2Server } from "node:http2";
import { createServer as createNetServer, type Server } from "node:net";
import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import {
  acceptPathAuthority,
  type ProxyServer,
  SESSION_MEMORY_MIB,
  SESSION_SETTINGS,
  type ServerTls,
  serverTls,
  serveSessions,
  type TlsPaths,
} from "#features/tunnel";
import { Listener } from "./listener.ts";
import type { ServerConfig } from "./server-config.ts";

const HTTP2 = { settings: SESSION_SETTINGS, maxSessionMemory: SESSION_MEMORY_MIB };
/** Receive window of a frontend's stream. HTTP/2 holds as much for each stream that is not read; frontends are near. */
const FRONTEND_WINDOW_BYTES = 256 * 1024;
/**
 * A frontend with a reusable tunnel resets a stream for each connection that it gives up. Node's default limit, 33 a second, would end
 * the session with all its connections.
 */
const FRONTEND_HTTP2 = {
  ...HTTP2,
  settings: { ...SESSION_SETTINGS, initialWindowSize: FRONTEND_WINDOW_BYTES },
  streamResetBurst: 100_000,
  streamResetRate: 10_000,
};
/** An agent has one stream, and two for a moment. */
const AGENT_HTTP2 = { ...HTTP2, settings: { ...SESSION_SETTINGS, maxConcurrentStreams: 16 } };

export interface ListenersDeps {
  readonly proxy: ProxyServer;
  readonly log: Logger;
}

export interface ListenersOptions {
  readonly config: Pick<ServerConfig, "frontend" | "agent">;
  readonly mode: "grpc" | "http-connect";
  readonly cipherSuites: readonly string[];
  readonly tlsMinVersion: string;
}

/** Opens the port for agents. Rejects with `ListenerError`, `TlsFilesError`. */
export async function listenForAgents(deps: ListenersDeps, options: ListenersOptions): Promise<Listener> {
  const { tls: paths, address } = options.config.agent;
  const tls = tlsOf("agents", paths, ["h2"], deps, options);
  const sessions = createServer(AGENT_HTTP2);
  deps.proxy.serveAgents(sessions);
  const server = secureSessions(tls, sessions);
  guard(server, tls, "agents", deps.log);
  return Listener.open(server, { kind: "tcp", address }, deps);
}

/** Opens the socket or port for frontends. Rejects with `ListenerError`, `SocketPathError`, `TlsFilesError`. */
export async function listenForFrontends(deps: ListenersDeps, options: ListenersOptions): Promise<Listener> {
  const { frontend } = options.config;
  if (frontend.kind === "uds") return Listener.open(plainServer(deps, options.mode), frontend, deps);
  const isGrpc = options.mode === "grpc";
  const tls = tlsOf("frontends", frontend.tls, isGrpc ? ["h2"] : ["http/1.1"], deps, options);
  const server = isGrpc ? secureGrpc(deps, tls) : secureConnect(deps, tls);
  guard(server, tls, "frontends", deps.log);
  return Listener.open(server, { kind: "tcp", address: frontend.address }, deps);
}

function plainServer({ proxy }: ListenersDeps, mode: ListenersOptions["mode"]): Server {
  if (mode === "grpc") {
    const server = createServer(FRONTEND_HTTP2);
    proxy.serveGrpcFrontends(server);
    return acceptPathAuthority(server);
  }
  const server = createNetServer({ allowHalfOpen: true, noDelay: true });
  proxy.serveConnectFrontends(server, "plain");
  return server;
}

function secureGrpc({ proxy }: ListenersDeps, tls: ServerTls): TlsServer {
  const sessions = createServer(FRONTEND_HTTP2);
  proxy.serveGrpcFrontends(sessions);
  return secureSessions(tls, sessions);
}

function secureSessions(tls: ServerTls, sessions: Http2Server): TlsServer {
  const server = createTlsServer({ ...tls.options, noDelay: true });
  serveSessions(server, sessions);
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
  { log }: ListenersDeps,
  { cipherSuites, tlsMinVersion: minVersion }: ListenersOptions,
): ServerTls {
  return serverTls(
    { paths, alpn, cipherSuites, minVersion },
    {
      onBroken: (why) => log.warn("new certificate files cannot be used; the old ones stay in use", { for: whom, why }),
      onReloaded: () => log.info("new certificate files are in use", { for: whom }),
    },
  );
}

/** Makes the certificates follow their files, and logs failed handshakes. */
function guard(server: TlsServer, tls: ServerTls, whom: string, log: Logger): void {
  tls.follow(server);
  // Debug only: scanners cause many.
  server.on("tlsClientError", (error, socket) => {
    log.debug("TLS handshake failed", { from: whom, peer: socket.remoteAddress, reason: describeError(error) });
  });
}
