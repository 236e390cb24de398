import { readFileSync } from "node:fs";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { unlessAborted } from "#base/async";
import { distrustText, type Trust, trustIn } from "#base/authorities";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { connectThrough, type HttpProxy } from "#base/http-proxy";
import type { HostPort } from "#wire/http-connect";
import { formatHostPort } from "#wire/http-connect";
import { type Capability, formatCapabilities, MetadataKey, TUNNEL_METHODS } from "#wire/konnectivity";
import { LinkError, type OpenedStream, openStream } from "../link/outgoing.ts";
import type { WindowPool } from "../mux/window-pool.ts";

/**
 * The agent's certificate and the authorities that it trusts. Files are read for each connection, so that changed files need no restart.
 */
export interface AgentTls {
  /** File of the authorities that sign servers, roots or not. Absent: the system's authorities. */
  readonly caFile: string | undefined;
  readonly certFile: string | undefined;
  readonly keyFile: string | undefined;
  /** The name that is sent as SNI and verified, instead of the host's name. */
  readonly serverName: string | undefined;
  /** ALPN names that are offered before `h2`, so that a balancer can recognise the tunnel. */
  readonly alpn: readonly string[];
}

export interface ConnectOptions {
  readonly agentID: string;
  /** Agent identifiers in the form of a URL query. */
  readonly identifiers: string;
  /** File of a bearer token. */
  readonly tokenFile: string | undefined;
  /** Absent: plain TCP, for tests on loopback. */
  readonly tls: AgentTls | undefined;
  readonly capabilities: ReadonlySet<Capability>;
  /** The proxy through which the server is reached; it gets the server's host, so that may be a name. Absent: none. */
  readonly proxy?: HttpProxy | undefined;
  /** Limit of the time from the start of connecting to the response headers, in milliseconds. */
  readonly timeoutMs: number;
  readonly keepAliveMs: number;
  /** This agent gives a dial up after this time, in milliseconds, and tells the server so. */
  readonly dialTimeoutMs?: number;
  /** Limit of a received message, in bytes. Default 4 MiB. */
  readonly maxMessageBytes?: number;
  /** The bytes that all receive windows of this process may share beyond those of near links. Default: no bound. */
  readonly windows?: WindowPool;
  readonly clock: Clock;
}

/** Opens an agent's stream to one server. Rejects with {@link LinkError}; an abort rejects with its reason. */
export async function connectServer(
  server: HostPort,
  options: ConnectOptions,
  abort: { readonly signal: AbortSignal },
): Promise<OpenedStream> {
  const metadata = metadataOf(options);
  const timeout = AbortSignal.timeout(Math.ceil(options.timeoutMs));
  const { clock } = options;
  const started = clock.monotonic();
  const signal = AbortSignal.any([abort.signal, timeout]);
  let socket: Socket;
  try {
    socket = await connected(server, options, signal);
  } catch (error) {
    abort.signal.throwIfAborted();
    if (error instanceof LinkError) throw error;
    const where = formatHostPort(server);
    if (timeout.aborted)
      throw new LinkError("timeout", `${where}: no connection was made within ${options.timeoutMs} ms`);
    const trusted = options.tls?.caFile === undefined ? "this machine" : options.tls.caFile;
    const distrust = distrustText(error, trusted);
    const why = distrust === undefined ? describeError(error) : `is not trusted: ${distrust}`;
    throw new LinkError("unreachable", `${where}: ${why}`, { cause: error });
  }
  return openStream(
    {
      socket,
      path: TUNNEL_METHODS.connect,
      authority: formatHostPort(server),
      metadata,
      timeoutMs: Math.max(1, options.timeoutMs - (clock.monotonic() - started)),
      keepAliveMs: options.keepAliveMs,
      clock,
      windows: options.windows,
      ...(options.maxMessageBytes === undefined ? {} : { maxMessageBytes: options.maxMessageBytes }),
    },
    abort,
  );
}

function metadataOf(options: ConnectOptions): Record<string, string> {
  const metadata: Record<string, string> = { [MetadataKey.agentID]: options.agentID };
  if (options.identifiers !== "") metadata[MetadataKey.agentIdentifiers] = options.identifiers;
  if (options.capabilities.size > 0) metadata[MetadataKey.capabilities] = formatCapabilities(options.capabilities);
  if (options.dialTimeoutMs !== undefined) metadata[MetadataKey.dialTimeout] = String(Math.ceil(options.dialTimeoutMs));
  if (options.tokenFile !== undefined) {
    // A header's value must not contain the line's end.
    metadata["authorization"] = `Bearer ${readText(options.tokenFile, "the token").trim()}`;
  }
  return metadata;
}

async function connected(
  server: HostPort,
  { tls, proxy }: Pick<ConnectOptions, "tls" | "proxy">,
  signal: AbortSignal,
): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const through =
    proxy === undefined
      ? undefined
      : await connectThrough(proxy, { hostname: server.host, port: server.port }, { signal });
  through?.setNoDelay(true);
  if (through !== undefined && tls === undefined) return through;
  const options = through === undefined ? { host: server.host, port: server.port, noDelay: true } : { socket: through };
  const socket =
    tls === undefined
      ? connectTcp({ host: server.host, port: server.port, noDelay: true })
      : connectTls({ ...options, ...tlsOptions(server, tls) });
  socket.once("error", reject);
  socket.once("close", () =>
    reject(new LinkError("unreachable", "the server closed the connection during its set-up")),
  );
  socket.once(tls === undefined ? "connect" : "secureConnect", resolve);
  try {
    await unlessAborted(promise, { signal });
    socket.off("error", reject);
    return socket;
  } catch (error) {
    socket.on("error", () => socket.destroy());
    socket.destroy();
    throw error;
  }
}

function tlsOptions({ host }: HostPort, tls: AgentTls): ConnectionOptions {
  const trust = tls.caFile === undefined ? undefined : readTrust(tls.caFile);
  const serverName = tls.serverName ?? (isIP(host) === 0 ? host : undefined);
  return {
    minVersion: "TLSv1.2",
    ALPNProtocols: [...tls.alpn, "h2"],
    ...(trust === undefined ? {} : { ...trust, ca: [...trust.ca] }),
    ...(tls.certFile === undefined ? {} : { cert: readText(tls.certFile, "the certificate") }),
    ...(tls.keyFile === undefined ? {} : { key: readText(tls.keyFile, "the key") }),
    ...(serverName === undefined ? {} : { servername: serverName }),
  };
}

/** As in Go, a listed authority is trusted, also if it is not a root, and what cannot be parsed is passed over. */
function readTrust(file: string): Trust {
  const trust = trustIn(readText(file, "the CA"));
  if (trust === undefined)
    throw new LinkError("protocol", `cannot use the CA: ${file} has no certificate that can be read`);
  return trust;
}

function readText(file: string, what: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new LinkError("protocol", `cannot read ${what}: ${describeError(error)}`, { cause: error });
  }
}
