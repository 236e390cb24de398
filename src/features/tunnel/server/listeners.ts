import { createServer, type Http2Server } from "node:http2";
import { createServer as createNetServer, type Server } from "node:net";
import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import type { Clock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { acceptPathAuthority } from "../link/authority-shim.ts";
import { SESSION_MEMORY_MIB, SESSION_SETTINGS } from "../link/session.ts";
import { serveSessions } from "../link/session-socket.ts";
import { type ServerTls, serverTls } from "../tls/server-tls.ts";
import type { TlsPaths } from "../tls/tls-files.ts";
import { Listener } from "./listener.ts";
import type { ProxyServer } from "./proxy-server.ts";

const HTTP2 = { settings: SESSION_SETTINGS, maxSessionMemory: SESSION_MEMORY_MIB };
/**
 * Receive window of a frontend's stream. HTTP/2 holds this number of bytes for each stream that is not read. Frontends are near, so that a
 * small window is enough.
 */
const FRONTEND_WINDOW_BYTES = 256 * 1024;
/**
 * A frontend with a reusable tunnel resets a stream for each connection that it cancels. Node.js's default limit, 33 a second, would end
 * the session with all its connections.
 */
const FRONTEND_HTTP2 = {
  ...HTTP2,
  settings: { ...SESSION_SETTINGS, initialWindowSize: FRONTEND_WINDOW_BYTES },
  streamResetBurst: 100_000,
  streamResetRate: 10_000,
};
/** Normally an agent has one stream, and for a short time two. */
const AGENT_HTTP2 = { ...HTTP2, settings: { ...SESSION_SETTINGS, maxConcurrentStreams: 16 } };

/** The listener for frontends: a UNIX socket, or TCP with mTLS. */
export type FrontendListen =
  | { readonly kind: "uds"; readonly path: string; readonly deleteExisting: boolean }
  | { readonly kind: "tcp"; readonly address: ListenAddress; readonly tls: TlsPaths };

/** The listener for agents. */
export interface AgentListen {
  readonly address: ListenAddress;
  readonly tls: TlsPaths;
}

/** Settings of TLS for both listeners. */
export interface ListenTlsOptions {
  /** IANA names; empty: the secure ones. */
  readonly cipherSuites: readonly string[];
  /** `VersionTLS10` to `VersionTLS13`; empty: 1.2. */
  readonly tlsMinVersion: string;
}

export interface ListenersDeps {
  readonly proxy: ProxyServer;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Opens the port for agents. Rejects with `ListenerError`, `TlsFilesError`. */
export async function listenForAgents(
  deps: ListenersDeps,
  { address, tls: paths }: AgentListen,
  options: ListenTlsOptions,
): Promise<Listener> {
  const tls = tlsOf("agents", paths, ["h2"], deps, options);
  const sessions = createServer(AGENT_HTTP2);
  deps.proxy.serveAgents(sessions);
  const server = secureSessions(tls, sessions);
  guard(server, tls, "agents", deps.log);
  return Listener.open(server, { kind: "tcp", address }, deps);
}

/** Opens the socket or port for frontends. Rejects with `ListenerError`, `SocketPathError`, `TlsFilesError`. */
export async function listenForFrontends(
  deps: ListenersDeps,
  frontend: FrontendListen,
  options: ListenTlsOptions & { readonly mode: "grpc" | "http-connect" },
): Promise<Listener> {
  if (frontend.kind === "uds") return Listener.open(plainServer(deps, options.mode), frontend, deps);
  const isGrpc = options.mode === "grpc";
  const tls = tlsOf("frontends", frontend.tls, isGrpc ? ["h2"] : ["http/1.1"], deps, options);
  const server = isGrpc ? secureGrpc(deps, tls) : secureConnect(deps, tls);
  guard(server, tls, "frontends", deps.log);
  return Listener.open(server, { kind: "tcp", address: frontend.address }, deps);
}

function plainServer({ proxy }: ListenersDeps, mode: "grpc" | "http-connect"): Server {
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

/** Makes the certificates follow their files, and logs failed handshakes. */
function guard(server: TlsServer, tls: ServerTls, whom: string, log: Logger): void {
  tls.follow(server);
  // The level is debug because scanners cause many failed handshakes.
  server.on("tlsClientError", (error, socket) => {
    log.debug("the TLS handshake of a client failed", {
      from: whom,
      peer: socket.remoteAddress,
      reason: describeError(error),
    });
  });
}
