import { IpAddress, socketAddress } from "#base/ip";
import type { EndpointAnswer, EndpointRequest } from "./answer.ts";
import type { MetricsClients } from "./metrics-clients.ts";

/** Answers by path. A path that ends in `/` also serves the paths below it. */
export type HttpRoutes = Readonly<
  Record<string, (request: EndpointRequest) => EndpointAnswer | Promise<EndpointAnswer>>
>;

/** The answer to a request whose sender may not have what it asks for; `undefined`: it may. */
export type Authorize = (request: EndpointRequest) => Promise<EndpointAnswer | undefined>;

/** The paths that probes read. Every client may read them. */
const HEALTH_PATHS: ReadonlySet<string> = new Set(["/healthz", "/livez", "/readyz", "/ready"]);
/** The paths that probes and scrapers read. They have no secrets. */
const OPEN_PATHS: ReadonlySet<string> = new Set([...HEALTH_PATHS, "/metrics", "/proxyMode"]);

/** True if probes read one of the paths. Pure. */
export function hasHealth(routes: HttpRoutes): boolean {
  return Object.keys(routes).some((path) => HEALTH_PATHS.has(path));
}

/**
 * Answers by path. On a loopback address only health and metrics are for whoever asks: a page in a browser of this machine reaches the port under a name of its
 * own (DNS rebinding), so there the Host of all other paths must be an address or `localhost`. Who is not among
 * `clients`, or is refused by `authorize`, reads health alone.
 */
export function answerByPath(
  routes: HttpRoutes,
  request: EndpointRequest,
  {
    notFound = "404 page not found",
    clients,
    authorize,
  }: {
    readonly notFound?: string | undefined;
    readonly clients?: MetricsClients | undefined;
    readonly authorize?: Authorize | undefined;
  } = {},
): EndpointAnswer | Promise<EndpointAnswer> {
  const route = routeOf(routes, request.path);
  if (route === undefined) return { status: 404, body: `${notFound}\n` };
  if (!OPEN_PATHS.has(request.path) && isForeignName(request))
    return { status: 403, body: "the Host of this request is neither an address nor localhost\n" };
  if (!HEALTH_PATHS.has(request.path) && clients?.admits(request) === false)
    return { status: 403, body: "your address is not in --metrics-from: only health is for you here\n" };
  if (HEALTH_PATHS.has(request.path) || authorize === undefined) return route(request);
  return authorize(request).then((refusal) => refusal ?? route(request));
}

function routeOf(routes: HttpRoutes, path: string): HttpRoutes[string] | undefined {
  if (Object.hasOwn(routes, path)) return routes[path];
  const below = Object.keys(routes).find((prefix) => prefix.endsWith("/") && path.startsWith(prefix));
  return below === undefined ? undefined : routes[below];
}

/** RFC 9112 3.2: a name, an IPv4 address, or an IPv6 one in brackets, and perhaps a port. */
const HOST = /^(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?$/;

/** The name or address of the Host field, without the port; the address that the client connected to if the field is missing or none. Pure. */
export function hostNameOf({ host, to = "127.0.0.1" }: Pick<EndpointRequest, "host" | "to">): string {
  return HOST.exec(host)?.[1] ?? (to.includes(":") ? `[${to}]` : to);
}

/** True if a client of a loopback address has named another host. HTTP/1.0 needs no Host. Pure. */
export function isForeignName({ host, to }: Pick<EndpointRequest, "host" | "to">): boolean {
  const address = socketAddress(to);
  if (host === "" || address?.isLoopback !== true) return false;
  const name = HOST.exec(host)?.[1]
    ?.replace(/^\[(.*)\]$/, "$1")
    .toLowerCase();
  return name === undefined || (name !== "localhost" && IpAddress.tryParse(name) === undefined);
}
