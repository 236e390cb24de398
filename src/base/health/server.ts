import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Registry } from "prom-client";
import { formatListenAddress, type ListenAddress } from "#base/config";
import { ConnectionLimit } from "#base/connection-limit";
import { ExpectedError } from "#base/errors";
import type { Health } from "./health.ts";

/** Connections at once. Whoever reaches the node may open some, so those without a request give way to those with one. */
const MAX_CLIENTS = 64;
/** Time limits for the head of a request and for all of it, in milliseconds, and how often they are checked. */
const TIMES = { headersTimeout: 5000, requestTimeout: 10_000, connectionsCheckingInterval: 1000 } as const;

export type HealthServerErrorCode = "cannot-listen";

/** The server of a health or metrics endpoint cannot listen on its address. */
export class HealthServerError extends ExpectedError<HealthServerErrorCode> {
  override readonly name = "HealthServerError";
}

interface Endpoint extends AsyncDisposable {
  readonly port: number;
}

type Handler = (request: IncomingMessage, response: ServerResponse) => Promise<void> | void;

/** The text of `/readyz`. */
export interface Readiness {
  readonly isReady: boolean;
  /** A line for each part that is not ready (for each part, when verbose), and the sum of them. */
  readonly text: string;
}

/** Whether all parts are ready, for programs that serve `/readyz` themselves. */
export function readiness(health: Health, { isVerbose }: { readonly isVerbose: boolean }): Readiness {
  const { unready } = health;
  const shown = isVerbose ? health.parts : unready;
  const lines = shown.map(({ name, status, reason }) => `[${status === "ok" ? "+" : "-"}]${name} ${status} ${reason}`);
  const isReady = unready.length === 0;
  return { isReady, text: `${[...lines, isReady ? "ok" : "not ready"].join("\n")}\n` };
}

/** Serves `/healthz` (the process answers) and `/readyz` (its parts are ready). Throws {@link HealthServerError}. */
export function serveHealth(
  deps: { readonly health: Health },
  options: { readonly address: ListenAddress },
): Promise<Endpoint> {
  return listen(options.address, (request, response) => {
    const [path, query] = targetOf(request);
    if (path === "/healthz") return reply(response, 200, "ok\n");
    if (path !== "/readyz") return reply(response, 404, "not found: try /healthz or /readyz\n");
    const { isReady, text } = readiness(deps.health, { isVerbose: query.has("verbose") });
    reply(response, isReady ? 200 : 503, text);
  });
}

/** Serves `/metrics` in the Prometheus text format. Throws {@link HealthServerError}. */
export function serveMetrics(
  deps: { readonly registry: Registry },
  options: { readonly address: ListenAddress },
): Promise<Endpoint> {
  return listen(options.address, async (request, response) => {
    if (targetOf(request)[0] !== "/metrics") return reply(response, 404, "not found: try /metrics\n");
    reply(response, 200, await deps.registry.metrics(), deps.registry.contentType);
  });
}

async function listen(address: ListenAddress, handler: Handler): Promise<Endpoint> {
  // An answer takes milliseconds, so the oldest client can only be one that does not read it.
  const connections = new ConnectionLimit(MAX_CLIENTS, { whenAllBusy: "end-oldest" });
  const server = createServer(TIMES, (request, response) => {
    connections.busy(request, response);
    const handled = (async (): Promise<void> => handler(request, response))();
    handled.catch((error: unknown) => {
      if (response.headersSent) response.destroy(error instanceof Error ? error : undefined);
      else reply(response, 500, "internal error\n");
    });
  });
  server.on("connection", (socket) => connections.admit(socket));
  await new Promise<void>((resolve, reject) => {
    const onError = (error: Error): void => {
      const text = formatListenAddress(address);
      reject(new HealthServerError("cannot-listen", `cannot listen on ${text}: ${error.message}`, { cause: error }));
    };
    server.once("error", onError);
    server.listen({ port: address.port, ...(address.host === undefined ? {} : { host: address.host }) }, () => {
      server.removeListener("error", onError);
      resolve();
    });
  });
  // A connection could not be accepted, such as for want of descriptors: its client sees that, and the program goes on.
  server.on("error", () => undefined);
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Returns the path and the query unchanged: clients may send targets that `URL` does not parse. */
function targetOf(request: IncomingMessage): readonly [path: string, query: URLSearchParams] {
  const [path = "/", ...query] = (request.url ?? "/").split("?");
  return [path, new URLSearchParams(query.join("?"))];
}

function reply(response: ServerResponse, status: number, body: string, type = "text/plain; charset=utf-8"): void {
  // An answer must not be cached.
  response.writeHead(status, {
    "content-type": type,
    "cache-control": "no-store",
    "content-length": Buffer.byteLength(body),
  });
  response.end(body);
}
