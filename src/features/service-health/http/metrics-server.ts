import type { ListenAddress } from "#base/config";
import type { Cidr } from "#base/ip";
import { countRefusedScrape, type Registry } from "#base/metrics";
import { type Authorize, answerByPath, type HttpRoutes, MetricsClients, SharedText } from "#wire/http-endpoint";
import type { EventSink } from "../events.ts";
import { keepAnswering } from "./keep-answering.ts";
import { type Listener, ProbeHttp, type ProbeHttpDeps } from "./probe-http.ts";

/** Collaborators of a {@link MetricsServer}. */
export interface MetricsServerDeps extends ProbeHttpDeps {
  readonly registry: Registry;
  /** The configuration in force, for `/configz`; printed as JSON. */
  readonly configz: () => unknown;
  /** Further pages for people. */
  readonly pages?: HttpRoutes | undefined;
  /** The paths for profiling; set with `--profiling`. */
  readonly debug?: HttpRoutes | undefined;
  readonly onEvent?: EventSink;
}

/** Settings of a {@link MetricsServer}. */
export interface MetricsServerOptions {
  readonly address: ListenAddress;
  /** Ranges of those who may read more than `/healthz`. Default, and empty: everybody. */
  readonly metricsFrom?: readonly Cidr[];
  /** Asked for each request that is not for `/healthz`. Default: everybody may. */
  readonly authorize?: Authorize | undefined;
  /** If true, `run` rejects if the address cannot be bound at once. Default: it tries without end. */
  readonly hardFail?: boolean;
}

/** `/metrics`, `/proxyMode`, `/healthz`, `/configz`, further pages (docs/spec/service-proxy.md#1.1), and paths for profiling. */
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
    const { onEvent, log, clock } = this.#deps;
    const { address, metricsFrom = [], authorize, hardFail = false } = this.#options;
    const clients = new MetricsClients(metricsFrom, { onRefused: countRefusedScrape });
    const routes = this.#routes();
    await using http = new ProbeHttp((request) => answerByPath(routes, request, { clients, authorize }), this.#deps);
    const onListening = (listeners: readonly Listener[]): void => {
      this.#listeners = listeners;
    };
    await keepAnswering(
      { http, onEvent, onListening, log, clock },
      { address, hardFail, failure: "FailedToStartMetricServer", what: "metrics", signal },
    );
    this.#listeners = [];
  }

  #routes(): HttpRoutes {
    const { registry, configz, pages = {}, debug = {}, clock } = this.#deps;
    const metrics = new SharedText(() => registry.metrics(), { clock });
    return {
      ...debug,
      ...pages,
      "/metrics": async () => ({ type: registry.contentType, body: await metrics.read() }),
      "/proxyMode": () => ({ body: "nftables" }),
      "/healthz": () => ({ body: "ok" }),
      "/configz": () => ({ type: "application/json", body: JSON.stringify(configz()) }),
    };
  }
}
