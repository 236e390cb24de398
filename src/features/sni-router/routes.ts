import { formatHostPort, type HostPort, parseHostPort } from "#wire/http-connect";
import { SniRouterError } from "./errors.ts";

/** A server name or pattern and its backends. */
export interface Route {
  /** The route's name in logs and metrics: the pattern, or `default`. */
  readonly name: string;
  /** Backends, at least one. They are tried in round robin. */
  readonly backends: readonly HostPort[];
  /** If true, the router first sends the backend a PROXY v2 header with the client's addresses. */
  readonly proxyProtocol: boolean;
}

/** The routes of a file or of flags. `name` of a route is a server name, or `*.` and a domain. */
export interface RouteSet {
  readonly routes: readonly Route[];
  /** Route of clients without a name, or whose name has no route. Absent: these clients are refused. */
  readonly defaultRoute?: Route;
}

/** The name of the default route. */
export const DEFAULT_ROUTE_NAME = "default";
/** Maximum of backends of a route. */
export const MAX_BACKENDS = 64;
/** Maximum of names of all routes together. */
export const MAX_NAMES = 10_000;

const LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?";
const PATTERN = new RegExp(`^(\\*\\.)?${LABEL}(\\.${LABEL})*$`);

/**
 * The pattern in lower case without trailing dot, or `undefined` if it is neither a DNS name nor `*.` before one. A wildcard stands for
 * exactly one label, as in certificates (RFC 9525 section 6.3).
 */
export function normalizePattern(text: string): string | undefined {
  const pattern = normalizeName(text);
  return pattern.length <= 253 && PATTERN.test(pattern) ? pattern : undefined;
}

/** Finds the route of a server name: the name's own route, else the route of the wildcard for its first label, else the default route. */
export class RouteTable {
  readonly #byPattern: ReadonlyMap<string, Route>;
  readonly #defaultRoute: Route | undefined;

  /** Throws {@link SniRouterError} `invalid-routes` when a name comes twice or nothing could be routed. */
  constructor(sets: readonly RouteSet[]) {
    const byPattern = new Map<string, Route>();
    for (const route of sets.flatMap((set) => set.routes)) {
      if (byPattern.has(route.name)) throw invalid(`the name ${route.name} has two routes; define one route for it`);
      byPattern.set(route.name, route);
    }
    const defaults = sets.flatMap((set) => set.defaultRoute ?? []);
    if (defaults.length > 1) throw invalid("two default routes are defined; define only one");
    if (byPattern.size + defaults.length === 0)
      throw invalid("no routes are defined; define at least one route, or a default");
    if (byPattern.size > MAX_NAMES)
      throw invalid(`the routes have ${byPattern.size} names; the maximum is ${MAX_NAMES}`);
    this.#byPattern = byPattern;
    this.#defaultRoute = defaults[0];
  }

  /** The route of a name. `undefined`: a client with this name is refused. */
  lookup(serverName: string | undefined): Route | undefined {
    if (serverName === undefined) return this.#defaultRoute;
    const name = normalizeName(serverName);
    const parent = name.slice(name.indexOf(".") + 1);
    // The pattern itself, such as "*.a", is not a valid name of a client.
    const exact = name.startsWith("*") ? undefined : this.#byPattern.get(name);
    const isBelow = name.includes(".") && !name.startsWith(".") && !name.startsWith("*");
    return exact ?? (isBelow ? this.#byPattern.get(`*.${parent}`) : undefined) ?? this.#defaultRoute;
  }

  /** All routes, the default last. */
  get routes(): readonly Route[] {
    return [...this.#byPattern.values(), ...(this.#defaultRoute === undefined ? [] : [this.#defaultRoute])];
  }

  /** Every backend of every route, each once, as `host:port`. */
  get backends(): ReadonlySet<string> {
    return new Set(this.routes.flatMap((route) => route.backends.map(formatHostPort)));
  }
}

/** Reads `name=host:port,host:port`. Throws {@link SniRouterError} `invalid-routes`. */
export function parseRouteFlag(text: string): Pick<Route, "name" | "backends"> {
  const cut = text.indexOf("=");
  if (cut < 0) throw invalid(`"${text}" is not NAME=HOST:PORT[,HOST:PORT...]`);
  const name = normalizePattern(text.slice(0, cut));
  if (name === undefined) throw invalid(`"${text.slice(0, cut)}" is neither a server name nor *. and a domain`);
  return { name, backends: parseBackends(text.slice(cut + 1)) };
}

/** Reads `host:port,host:port`. Throws {@link SniRouterError} `invalid-routes`. */
export function parseBackends(text: string): HostPort[] {
  const backends = text.split(",").map((part) => {
    const backend = parseHostPort(part);
    if (backend === undefined) throw invalid(`"${part}" is not HOST:PORT or [IPv6]:PORT`);
    return backend;
  });
  if (backends.length > MAX_BACKENDS)
    throw invalid(`the route has ${backends.length} backends; the maximum is ${MAX_BACKENDS}`);
  return backends;
}

function invalid(message: string): SniRouterError {
  return new SniRouterError("invalid-routes", message);
}

/** Names are compared without case and with or without the dot of the root (RFC 6066 section 3). */
function normalizeName(name: string): string {
  return name.toLowerCase().replace(/\.$/, "");
}
