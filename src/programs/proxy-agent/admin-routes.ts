import { type HttpRoutes, profilingRoutes } from "../http-endpoints/index.ts";

/** Routes of the admin port: a redirect of `/metrics` to the health port, and profiles if `profiling` is set. */
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
