import type { Health } from "#base/health";
import type { HttpRoutes } from "#wire/http-endpoint";

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

/** The result of a check. */
export interface CheckResult {
  readonly name: string;
  /** The reason why it failed. */
  readonly why?: string | undefined;
}

/** Makes all checks. */
export function resultsOf(checks: readonly ReadinessCheck[]): readonly CheckResult[] {
  return checks.map(({ name, fault }) => ({ name, why: fault() }));
}

/** The reply of `/readyz` while a check fails. */
export interface Unready {
  readonly status: number;
  readonly body: (results: readonly CheckResult[]) => string;
}

/** The state that the routes of the health port report. */
export interface HealthSource {
  readonly results: () => readonly CheckResult[] | Promise<readonly CheckResult[]>;
  /** The reason to start the program again. */
  readonly fault: () => string | undefined | Promise<string | undefined>;
  readonly metrics: HttpRoutes[string];
}

/**
 * `/healthz`, `/readyz`, `/ready` and `/metrics`, in Konnectivity's words (docs/spec/tunnel.md#13). `?verbose` lists every check.
 * Without `?verbose`, `unready` is the reply while a check fails.
 */
export function healthRoutes({ results: read, fault, metrics }: HealthSource, unready: Unready): HttpRoutes {
  const readiness: HttpRoutes[string] = async ({ query }) => {
    const results = await read();
    const isReady = results.every(({ why }) => why === undefined);
    if (query.has("verbose")) {
      return isReady
        ? { body: `${linesOf(results)}check passed\n` }
        : { status: unready.status, body: linesOf(results) };
    }
    return isReady ? { body: "ok" } : { status: unready.status, body: unready.body(results) };
  };
  return {
    "/healthz": async () => {
      const why = await fault();
      return why === undefined ? { body: "ok" } : { status: 500, body: why };
    },
    "/readyz": readiness,
    "/ready": readiness,
    "/metrics": metrics,
  };
}

/** Returns the text with a line for each check. */
export function linesOf(results: readonly CheckResult[]): string {
  return results
    .map(({ name, why }) => (why === undefined ? `[+]${name} ok\n` : `[-]${name} failed: ${why}\n`))
    .join("");
}

/** The agent's reply while it is not ready: a list of every check. */
export const AGENT_UNREADY: Unready = { status: 503, body: linesOf };

/** The server's reply while it is not ready: the reasons. If agents are missing, the text is the same as Konnectivity's. */
export const SERVER_UNREADY: Unready = {
  status: 500,
  body: (results) =>
    results
      .flatMap(({ name, why }) => (why === undefined ? [] : [name === "agents" ? why : `${name}: ${why}`]))
      .join("\n"),
};
