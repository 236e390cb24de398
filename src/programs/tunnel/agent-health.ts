import type { Routes } from "./http.ts";
import { profilingRoutes } from "./profiling.ts";

/** Redirects `/metrics` to the health port; serves profiles. */
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
