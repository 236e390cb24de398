import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { formatListenAddress, type ListenAddress } from "#base/config";
import { ConnectionLimit } from "#base/connection-limit";
import { describeError } from "#base/errors";
import { HealthServerError } from "#base/health";
import type { Logger } from "#base/log";
import type { Registry } from "#base/metrics";

/** The time limit for the head of a request, in milliseconds. */
const HEADERS_TIMEOUT_MS = 5000;
/** The time limit for a whole request, in milliseconds (docs/spec/tunnel.md#5.4). */
const REQUEST_TIMEOUT_MS = 60_000;
/** How often these timeouts are checked, in milliseconds. */
const CHECKING_INTERVAL_MS = 1000;
const MAX_CLIENTS = 64;

/** A parsed request. */
export interface HttpRequest {
  readonly path: string;
  readonly query: URLSearchParams;
  /** The name in the Host header without the port; the local address if there is none. */
  readonly host: string;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}

/** The reply of a path: a text or a stream. */
export interface HttpReply {
  readonly status?: number;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | AsyncIterable<Uint8Array>;
}

/** Replies by path. A path that ends in `/` also serves the paths below it. */
export type HttpRoutes = Readonly<Record<string, (request: HttpRequest) => HttpReply | Promise<HttpReply>>>;

/** Listens until disposed. */
export interface Endpoint extends AsyncDisposable {
  readonly port: number;
}

/** Serves plain HTTP for probes and operators. Rejects with `HealthServerError` if listening fails. */
export async function serveRoutes(
  deps: { readonly routes: HttpRoutes; readonly log: Logger; readonly onBug: (error: unknown) => void },
  options: { readonly address: ListenAddress },
): Promise<Endpoint> {
  const { address } = options;
  // A client chooses the duration of its profile, so a later client must not end that client's connection.
  const connections = new ConnectionLimit(MAX_CLIENTS, { whenAllBusy: "refuse-next" });
  const server = createServer(
    {
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECKING_INTERVAL_MS,
    },
    (request, response) => {
      connections.busy(request, response);
      answer(deps.routes, request, response).catch((error: unknown) => {
        response.destroy();
        deps.onBug(error);
      });
    },
  );
  server.on("connection", (socket) => connections.admit(socket));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onError = (error: Error): void => {
    const where = formatListenAddress(address);
    reject(new HealthServerError("cannot-listen", `cannot listen on ${where}: ${error.message}`, { cause: error }));
  };
  server.once("error", onError);
  server.listen({ ...address }, resolve);
  await promise;
  server.off("error", onError);
  server.on("error", (error) =>
    deps.log.warn("cannot accept the connection of a health probe", { reason: describeError(error) }),
  );
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}

/** `/metrics` in the Prometheus text format. */
export function metricsRoute(registry: Registry): HttpRoutes[string] {
  return async () => ({ type: registry.contentType, body: await registry.metrics() });
}

async function answer(routes: HttpRoutes, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const [path = "/", ...query] = (request.url ?? "/").split("?");
  const route = routeOf(routes, path);
  const gone = new AbortController();
  response.once("close", () => gone.abort(new DOMException("the client closed the connection", "AbortError")));
  const { body, status, type, headers } =
    route === undefined
      ? { body: "404 page not found\n", status: 404, type: undefined, headers: undefined }
      : await route({
          path,
          query: new URLSearchParams(query.join("?")),
          host: hostOf(request),
          signal: gone.signal,
        });
  if (gone.signal.aborted) return;
  const head = { "content-type": type ?? "text/plain; charset=utf-8", "cache-control": "no-store", ...headers };
  if (typeof body === "string") {
    response.writeHead(status ?? 200, { ...head, "content-length": Buffer.byteLength(body) });
    response.end(body);
    return;
  }
  response.writeHead(status ?? 200, head);
  for await (const chunk of body) {
    if (response.destroyed) return;
    if (!response.write(chunk)) await drained(response);
  }
  response.end();
}

function routeOf(routes: HttpRoutes, path: string): HttpRoutes[string] | undefined {
  if (Object.hasOwn(routes, path)) return routes[path];
  const below = Object.keys(routes).find((prefix) => prefix.endsWith("/") && path.startsWith(prefix));
  return below === undefined ? undefined : routes[below];
}

/** The host name for redirects: the name in the Host header if that name is valid. */
function hostOf(request: IncomingMessage): string {
  const named = /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?$/.exec(request.headers.host ?? "")?.[1];
  if (named !== undefined) return named;
  const local = request.socket.localAddress ?? "127.0.0.1";
  return local.includes(":") ? `[${local}]` : local;
}

function drained(response: ServerResponse): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once("drain", resolve);
  response.once("close", resolve);
  return promise;
}
