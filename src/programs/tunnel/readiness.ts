import type { Health } from "#base/health";
import type { Registry } from "#base/metrics";
import { type HttpRoutes, metricsRoute } from "../http-endpoints/index.ts";

/** One check of readiness. */
export interface ReadinessCheck {
  readonly name: string;
  /** The reason why the check fails; `undefined` if it succeeds. */
  readonly fault: () => string | undefined;
}

/** The parts of a program's health that were declared so far, as checks. */
export function partChecks(health: Health): readonly ReadinessCheck[] {
  return health.parts.map(({ name }) => ({
    name,
    fault: () => {
      const part = health.unready.find((one) => one.name === name);
      return part === undefined ? undefined : [part.status, part.reason].filter((text) => text !== "").join(": ");
    },
  }));
}

interface Result {
  readonly name: string;
  readonly why: string | undefined;
}

/**
 * `/healthz`, `/readyz`, `/ready` and `/metrics`, in Konnectivity's words (docs/spec/tunnel.md#13). `?verbose` lists every check.
 * Without `?verbose`, `unready` is the reply while a check fails.
 */
export function healthRoutes(
  registry: Registry,
  checks: () => readonly ReadinessCheck[],
  unready: { readonly status: number; readonly body: (results: readonly Result[]) => string },
): HttpRoutes {
  const readiness: HttpRoutes[string] = ({ query }) => {
    const results = checks().map(({ name, fault }): Result => ({ name, why: fault() }));
    const isReady = results.every(({ why }) => why === undefined);
    if (query.has("verbose")) {
      return isReady
        ? { body: `${linesOf(results)}check passed\n` }
        : { status: unready.status, body: linesOf(results) };
    }
    return isReady ? { body: "ok" } : { status: unready.status, body: unready.body(results) };
  };
  return {
    "/healthz": () => ({ body: "ok" }),
    "/readyz": readiness,
    "/ready": readiness,
    "/metrics": metricsRoute(registry),
  };
}

/** Returns the text with a line for each check. */
export function linesOf(results: readonly Result[]): string {
  return results
    .map(({ name, why }) => (why === undefined ? `[+]${name} ok\n` : `[-]${name} failed: ${why}\n`))
    .join("");
}

/** The agent's reply while it is not ready: a list of every check. */
export const AGENT_UNREADY = { status: 503, body: linesOf } as const;

/** The server's reply while it is not ready: the reasons. If agents are missing, the text is the same as Konnectivity's. */
export const SERVER_UNREADY = {
  status: 500,
  body: (results: readonly Result[]): string =>
    results
      .flatMap(({ name, why }) => (why === undefined ? [] : [name === "agents" ? why : `${name}: ${why}`]))
      .join("\n"),
} as const;
