import type { Routes } from "./http.ts";
import { profilingRoutes } from "./profiling.ts";

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
