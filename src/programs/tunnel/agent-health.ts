import type { Registry } from "#base/metrics";
import { metricsRoute, type Routes } from "./http.ts";
import { profilingRoutes } from "./profiling.ts";

/** One part of readiness. */
export interface Check {
  readonly name: string;
  /** Why it is not ready; `undefined` when it is. */
  readonly fault: () => string | undefined;
}

/** `/healthz`, `/readyz`, `/ready` and `/metrics`, in upstream's words (spec tunnel 13). */
export function healthRoutes(registry: Registry, checks: readonly Check[]): Routes {
  const readiness: Routes[string] = ({ query }) => {
    const results = checks.map(({ name, fault }) => ({ name, why: fault() }));
    const lines = results.map(({ name, why }) =>
      why === undefined ? `[+]${name} ok\n` : `[-]${name} failed: ${why}\n`,
    );
    if (results.some(({ why }) => why !== undefined)) return { status: 503, body: lines.join("") };
    return { body: query.has("verbose") ? `${lines.join("")}check passed\n` : "ok" };
  };
  return {
    "/healthz": () => ({ body: "ok" }),
    "/readyz": readiness,
    "/ready": readiness,
    "/metrics": metricsRoute(registry),
  };
}

/** `/metrics` has moved to the health port; profiles are here. */
export function adminRoutes(profiling: boolean, healthPort: number): Routes {
  return {
    "/metrics": ({ host }) => ({
      status: 301,
      headers: { location: `http://${host}:${healthPort}/metrics` },
      body: "Moved Permanently\n",
    }),
    ...(profiling ? profilingRoutes() : {}),
  };
}
