import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Clock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import type { Registry } from "#base/metrics";
import type { EventSink } from "../events.ts";
import { reply } from "./health-server.ts";
import { keepListening } from "./keep-listening.ts";
import { type Listener, ProbeHttp, type ProbeHttpDeps } from "./probe-http.ts";

/** A request to one of the {@link DebugRoutes}. */
export interface DebugRequest {
  readonly path: string;
  readonly query: URLSearchParams;
  /** Host of the request, without the port. */
  readonly host: string;
  /** Aborts when the client closes the connection. */
  readonly signal: AbortSignal;
}

/** Answer of one of the {@link DebugRoutes}. */
export interface DebugAnswer {
  readonly status?: number;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | AsyncIterable<Uint8Array>;
}

/** Handlers for profiling, by path. A path that ends in `/` stands for all paths below it. */
export type DebugRoutes = Readonly<Record<string, (request: DebugRequest) => DebugAnswer | Promise<DebugAnswer>>>;

/** Collaborators of a {@link MetricsServer}. */
export interface MetricsServerDeps extends ProbeHttpDeps {
  readonly registry: Registry;
  /** The configuration in force, for `/configz`; printed as JSON. */
  readonly configz: () => unknown;
  /** The paths for profiling; set with `--profiling`. */
  readonly debug?: DebugRoutes | undefined;
  readonly onEvent?: EventSink;
  /** Called when a handler failed because of a bug: the program has to end. */
  readonly onBug: (error: unknown) => void;
  readonly clock: Clock;
}

/** Settings of a {@link MetricsServer}. */
export interface MetricsServerOptions {
  readonly address: ListenAddress;
  /** If true, `run` rejects if the address cannot be bound at once. Default: it tries without end. */
  readonly hardFail?: boolean;
}

const TEXT = "text/plain; charset=utf-8";

/** `/metrics`, `/proxyMode`, `/healthz`, `/configz` (docs/spec/service-proxy.md#1.1), and the {@link DebugRoutes}. */
export class MetricsServer {
  readonly #deps: MetricsServerDeps;
  readonly #options: MetricsServerOptions;
  #listeners: readonly Listener[] = [];

  constructor(deps: MetricsServerDeps, options: MetricsServerOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The port; `undefined` while the server does not listen. */
  get port(): number | undefined {
    return this.#listeners[0]?.port;
  }

  /** Serves until the signal aborts. Rejects with the errors of {@link HealthServer.run}. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { onEvent, log, clock, onBug } = this.#deps;
    const { address, hardFail = false } = this.#options;
    await using http = new ProbeHttp((request, response) => {
      this.#answer(request, response).catch((error: unknown) => {
        response.destroy();
        onBug(error);
      });
    }, this.#deps);
    const onListening = (listeners: readonly Listener[]): void => {
      this.#listeners = listeners;
    };
    await keepListening(
      { http, onEvent, onListening, log, clock },
      { address, hardFail, failure: "FailedToStartMetricServer", what: "metrics", signal },
    );
    this.#listeners = [];
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = "/", ...query] = (request.url ?? "/").split("?");
    const { registry, configz } = this.#deps;
    switch (path) {
      case "/metrics":
        return reply(response, 200, registry.contentType, await registry.metrics());
      case "/proxyMode":
        return reply(response, 200, TEXT, "nftables");
      case "/healthz":
        return reply(response, 200, TEXT, "ok");
      case "/configz":
        return reply(response, 200, "application/json", JSON.stringify(configz()));
      default:
        return this.#debug(path, query.join("?"), request, response);
    }
  }

  async #debug(path: string, query: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const route = routeOf(this.#deps.debug ?? {}, path);
    if (route === undefined) return reply(response, 404, TEXT, "404 page not found\n");
    const gone = new AbortController();
    response.once("close", () => gone.abort(new DOMException("the client closed the connection", "AbortError")));
    const [host = ""] = (request.headers.host ?? "").split(/:\d+$/);
    const answer = await route({ path, query: new URLSearchParams(query), host, signal: gone.signal });
    if (gone.signal.aborted) return;
    const { body, status = 200, type = TEXT, headers = {} } = answer;
    if (typeof body === "string") return reply(response, status, type, body, headers);
    response.writeHead(status, { "content-type": type, "x-content-type-options": "nosniff", ...headers });
    await pipeline(Readable.from(body), response, { signal: gone.signal }).catch((error: unknown) => {
      if (!gone.signal.aborted) throw error;
    });
  }
}

function routeOf(routes: DebugRoutes, path: string): DebugRoutes[string] | undefined {
  if (Object.hasOwn(routes, path)) return routes[path];
  const below = Object.keys(routes).find((prefix) => prefix.endsWith("/") && path.startsWith(prefix));
  return below === undefined ? undefined : routes[below];
}
