import { type HttpRoutes, profilingRoutes } from "../http-endpoints/index.ts";

/** Redirects `/metrics` to the health port; serves profiles. */
export function adminRoutes(profiling: boolean, healthPort: number): HttpRoutes {
  return {
    "/metrics": ({ host }) => ({
      status: 301,
      headers: { location: `http://${host}:${healthPort}/metrics` },
      body: "Moved Permanently\n",
    }),
    ...(profiling ? profilingRoutes() : {}),
  };
}
