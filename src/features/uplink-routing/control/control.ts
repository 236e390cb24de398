import { mkdirSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { dirname } from "node:path";
import type { Logger } from "#base/log";
import { Places, RequestTurns } from "#base/places";
import { claimSocketPath, listenOnPath, SocketPathError } from "#base/unix-socket";
import type { Uplink, UplinkStatus } from "#base/uplink-model";
import { parseStatus, StatusError } from "./status.ts";

/** Maximum length of a body, in bytes. Longer bodies are refused. */
const MAX_BODY_BYTES = 16_384;
/** Maximum number of connections: a host has only a few agents. The next one takes the place of the one that has been without a request for longest. */
const MAX_CONNECTIONS = 32;
const TIMEOUT_MS = 5000;
/** Gives the socket mode 0600: only its owner may report the status of uplinks. */
const UMASK = 0o177;

export interface ControlDeps {
  readonly uplinks: () => readonly Uplink[];
  /** Returns false if there is no uplink with this name. */
  readonly reportStatus: (uplink: string, status: UplinkStatus) => boolean;
  readonly log: Logger;
}

/**
 * Serves the control socket (docs/spec/uplink-proxy.md#2.2) until disposed: `GET /v1/uplinks`, `PUT /v1/uplinks/<name>/status`. A socket
 * that an earlier process left is replaced. Throws {@link SocketPathError} if the path cannot be used.
 */
export async function serveControl(deps: ControlDeps, options: { readonly path: string }): Promise<AsyncDisposable> {
  const { path } = options;
  makeFolder(path);
  await claimSocketPath(path, { deleteExisting: true });
  const server = controlServer(deps);
  const listening = await listenOnPath(server, path, { umask: UMASK });
  return {
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      listening.close(() => closed.resolve());
      server.closeAllConnections();
      await closed.promise;
    },
  };
}

function makeFolder(path: string): void {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new SocketPathError("cannot-listen", `cannot listen on ${path}: ${error.message}`, { cause: error });
  }
}

function controlServer({ uplinks, reportStatus, log }: ControlDeps): Server {
  const limits = { requestTimeout: TIMEOUT_MS, headersTimeout: TIMEOUT_MS, keepAliveTimeout: TIMEOUT_MS };
  const turns = new RequestTurns();
  const places = new Places(MAX_CONNECTIONS);
  const server = createServer({ ...limits, maxHeaderSize: MAX_BODY_BYTES }, (request, response) => {
    if (!turns.take(request, response)) return;
    const { socket } = request;
    places.begin(socket);
    response.once("close", () => places.end(socket));
    const route = routeOf(request);
    if (route.kind === "list") return answer(response, 200, { uplinks: uplinks().map(describeUplink) });
    if (route.kind === "refuse") return answer(response, route.status, { error: route.error }, route.headers);
    takeStatus(request, response, (status) => {
      const isKnown = reportStatus(route.uplink, status);
      if (!isKnown) return answer(response, 404, { error: `there is no uplink ${route.uplink}` });
      log.debug("uplink status reported", { uplink: route.uplink });
      return answer(response, 204);
    });
  });
  server.on("connection", (socket) => {
    socket.once("close", () => places.leave(socket));
    places.take(socket)?.destroy();
  });
  // No connection could be accepted, because descriptors are exhausted. Open connections continue, and the next attempt may succeed.
  server.on("error", (error) => log.warn("cannot accept a connection on the control socket", { error }));
  server.setTimeout(TIMEOUT_MS);
  return server;
}

type Route =
  | { readonly kind: "list" }
  | { readonly kind: "status"; readonly uplink: string }
  | {
      readonly kind: "refuse";
      readonly status: number;
      readonly error: string;
      readonly headers?: Readonly<Record<string, string>>;
    };

function routeOf({ method = "", url = "" }: IncomingMessage): Route {
  if (url === "/v1/uplinks") return method === "GET" ? { kind: "list" } : notAllowed("GET");
  const uplink = /^\/v1\/uplinks\/([A-Za-z0-9][A-Za-z0-9_.:-]{0,63})\/status$/.exec(url)?.[1];
  if (uplink === undefined)
    return {
      kind: "refuse",
      status: 404,
      error: "unknown path; the paths are /v1/uplinks and /v1/uplinks/<name>/status",
    };
  return method === "PUT" ? { kind: "status", uplink } : notAllowed("PUT");
}

function notAllowed(allow: string): Route {
  return {
    kind: "refuse",
    status: 405,
    error: `only the method ${allow} is allowed for this path`,
    headers: { allow },
  };
}

function takeStatus(request: IncomingMessage, response: ServerResponse, take: (status: UplinkStatus) => void): void {
  const chunks: Buffer[] = [];
  let length = 0;
  request.on("data", (chunk: Buffer) => {
    length += chunk.length;
    if (length <= MAX_BODY_BYTES) chunks.push(chunk);
  });
  request.on("end", () => {
    if (length > MAX_BODY_BYTES) {
      return answer(
        response,
        413,
        { error: `the body has more than ${MAX_BODY_BYTES} bytes` },
        { connection: "close" },
      );
    }
    try {
      return take(parseStatus(Buffer.concat(chunks).toString("utf8")));
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      return answer(response, 400, { error: error.message });
    }
  });
}

function answer(
  response: ServerResponse,
  status: number,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers });
  response.end(body === undefined ? undefined : `${JSON.stringify(body)}\n`);
}

/** An uplink in the list: names and values as in the configuration, times as RFC 3339. */
function describeUplink(uplink: Uplink): unknown {
  const { name, ifName, cost, isManagement, isUp, addresses, gateway4, gateway6, dnsServers, table, lastProbe } =
    uplink;
  const { lastFailed, lastSucceeded, lastError, lastWarning } = uplink.status;
  const time = (at: number | undefined): string | null => (at === undefined ? null : new Date(at).toISOString());
  return {
    name,
    interface: ifName,
    cost,
    management: isManagement,
    up: isUp,
    addresses: addresses.map(({ address, prefixLength, isUsable }) => ({
      address: `${address}/${prefixLength}`,
      usable: isUsable,
    })),
    gateway4: gateway4 ?? null,
    gateway6: gateway6 ?? null,
    dnsServers,
    table: table ?? null,
    lastProbe: lastProbe ?? null,
    status: { lastFailed: time(lastFailed), lastSucceeded: time(lastSucceeded), lastError, lastWarning },
  };
}
