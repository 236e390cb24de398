import { sleep } from "#base/async";
import type { ListenAddress } from "#base/config";
import type { Health } from "#base/health";
import type { EndpointAnswer, EndpointRequest } from "#wire/http-endpoint";
import type { EventSink } from "../events.ts";
import type { HealthCheck, NodeHealth } from "../state/index.ts";
import { keepAnswering } from "./keep-answering.ts";
import { type Listener, ProbeHttp, type ProbeHttpDeps } from "./probe-http.ts";

/** The time for which probes are answered with 503 after the signal has aborted, milliseconds (docs/spec/service-proxy.md#2.12). */
export const LINGER_MS = 1000;

/** Collaborators of a {@link HealthServer}. */
export interface HealthServerDeps extends ProbeHttpDeps {
  readonly health: NodeHealth;
  /** Called for each answer before its head is written. */
  readonly onAnswer?: (check: HealthCheck, code: 200 | 503) => void;
  readonly onEvent?: EventSink;
  /** Source of `/readyz`; absent: there is no such path. */
  readonly readiness?: Pick<Health, "parts" | "unready">;
}

/** Settings of a {@link HealthServer}. */
export interface HealthServerOptions {
  readonly address: ListenAddress;
  /** If true, `run` rejects if the address cannot be bound at once. Default: it tries without end. */
  readonly hardFail?: boolean;
  /** Default {@link LINGER_MS}. */
  readonly lingerMs?: number;
}

/** `/healthz` and `/livez` for load balancers and kubelets (docs/spec/service-proxy.md#1.1, #1.4), `/readyz` for people and rollouts. */
export class HealthServer {
  readonly #deps: HealthServerDeps;
  readonly #options: HealthServerOptions;
  #listeners: readonly Listener[] = [];

  constructor(deps: HealthServerDeps, options: HealthServerOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The port; `undefined` while the server does not listen. */
  get port(): number | undefined {
    return this.#listeners[0]?.port;
  }

  /**
   * Serves until the signal aborts, then answers 503 for `lingerMs`. Rejects with `ServiceHealthError` for an invalid address and, with
   * `hardFail`, if the address cannot be bound.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { health, clock } = this.#deps;
    const { address, hardFail = false, lingerMs = LINGER_MS } = this.#options;
    await using http = new ProbeHttp((request) => this.#answer(request), this.#deps);
    await keepAnswering(
      {
        http,
        clock,
        onEvent: this.#deps.onEvent,
        log: this.#deps.log,
        onListening: (listeners) => {
          this.#listeners = listeners;
        },
      },
      { address, hardFail, failure: "FailedToStartProxierHealthcheck", what: "health checks", signal },
    );
    health.stopping();
    if (this.#listeners.length > 0) await sleep(lingerMs, { clock });
    this.#listeners = [];
  }

  #answer({ path }: EndpointRequest): EndpointAnswer {
    const { readiness } = this.#deps;
    if (path === "/readyz" && readiness !== undefined)
      return { status: readiness.unready.length === 0 ? 200 : 503, body: readyText(readiness) };
    const check = path === "/healthz" ? "healthz" : path === "/livez" ? "livez" : undefined;
    if (check === undefined) return { status: 404, body: "404 page not found\n" };
    const { code, body } = this.#deps.health[check]();
    this.#deps.onAnswer?.(check, code);
    return { status: code, type: "application/json", body };
  }
}

/** The text of `/readyz`: a line for each part of the program, and the result. */
function readyText({ parts, unready }: Pick<Health, "parts" | "unready">): string {
  const lines = parts.map(({ name, status, reason }) =>
    `[${status === "ok" ? "+" : "-"}]${name} ${status} ${reason}`.trimEnd(),
  );
  return `${[...lines, unready.length === 0 ? "ok" : "not ready"].join("\n")}\n`;
}
