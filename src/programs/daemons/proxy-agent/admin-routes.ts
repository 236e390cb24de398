import { type HttpRoutes, hostNameOf } from "#wire/http-endpoint";
import { profilingRoutes } from "../../shared/http-endpoints/index.ts";

/** Routes of the admin port: a redirect of `/metrics` to the health port, and profiles if `profiling` is set. */
export function adminRoutes(profiling: boolean, healthPort: number): HttpRoutes {
  return {
    "/metrics": (request) => ({
      status: 301,
      headers: { location: `http://${hostNameOf(request)}:${healthPort}/metrics` },
      body: "Moved Permanently\n",
    }),
    ...(profiling ? profilingRoutes() : {}),
  };
}
