import { on } from "node:events";
import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import {
  addressFlag,
  ConfigError,
  durationFlag,
  type Flag,
  formatListenAddress,
  integerFlag,
  type ListenAddress,
  optionalFlag,
  parsedFlag,
  parseListenAddress,
  switchFlag,
} from "#base/config";
import { Health, type HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { createRegistry } from "#base/metrics";
import {
  DEFAULT_ROUTE_NAME,
  parseBackends,
  parseRouteFlag,
  type Route,
  type RouteSet,
  RouteTable,
  readRouteFile,
  routerMetrics,
  SniRouter,
  SniRouterError,
} from "#features/sni-router";
import { balancerFault, balancerFlags, balancersOf } from "../../shared/balancers/index.ts";
import { logFlags, loggerOf } from "../../shared/daemon/index.ts";
import { metricsFromFlag, serveHealth, serveMetrics } from "../../shared/http-endpoints/index.ts";
import { type OpenFiles, sayOpenFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";

const DEFAULT_LISTEN = ":8091";

const flags = {
  listen: listenFlag(),
  config: optionalFlag("config", "routes in YAML, read again at SIGHUP", "FILE"),
  route: routeFlag(),
  defaultRoute: parsedFlag(
    "default",
    parseBackends,
    "backends for clients without a server name, or whose name has no route; without it they are refused",
    "HOST:PORT,...",
  ),
  proxyProtocol: switchFlag("proxy-protocol", false, "the routes that flags define send a PROXY v2 header first"),
  maxConnections: integerFlag("max-connections", 10_000, "maximum of simultaneous clients", { min: 1, max: 500_000 }),
  helloTimeout: durationFlag("hello-timeout", "5s", "how long a client may take to send its ClientHello"),
  connectTimeout: durationFlag(
    "connect-timeout",
    "5s",
    "timeout for connecting to a backend, for all attempts together",
  ),
  drainTimeout: durationFlag("drain-timeout", "10s", "how long connections may continue after SIGTERM"),
  ...balancerFlags,
  metricsAddr: addressFlag("metrics-addr", ":9398", "address of /metrics"),
  ...metricsFromFlag,
  healthAddr: addressFlag("health-addr", ":9399", "address of /healthz and /readyz"),
  ...logFlags,
};

/** `sni-router` (docs/spec/tunnel.md#9.7). */
export const sniRouter = defineProgram({
  name: "sni-router",
  summary:
    "Forwards TLS connections by the server name (SNI) that the client sends. Several clusters can share one address.",
  flags,
  metrics: [routerMetrics],
  notes: [
    [
      "The file of --config:",
      "  routes:",
      '    - names: [a.example.com, "*.a.example.com"]   # a wildcard matches exactly one label',
      '      backends: ["10.0.0.1:8091", "[2001:db8::1]:8091"]   # round robin, past one that is down',
      "      proxyProtocol: true   # send a PROXY v2 header first; default false",
      "  default:   # optional: for clients without a name, or whose name has no route",
      '    backends: ["10.0.0.9:8091"]',
    ].join("\n"),
    "At SIGHUP the file is read again; the faults of an invalid file are logged in one line, and the old routes stay in force. TLS is not decrypted.",
  ],
  run: async ({ values, signal }) => {
    // This listener is added before everything else, because SIGHUP without a listener ends the process.
    const sighups = on(process, "SIGHUP", { signal });
    const fault = balancerFault(values);
    if (fault !== undefined) throw new ConfigError("invalid-flags", [`--balancer-proxy-protocol: ${fault}`]);
    const log = loggerOf("sni-router", values);
    const { maxConnections } = values;
    const files = sayOpenFiles(log, { filesOfEach: 2, atMost: maxConnections });
    const load = async (): Promise<RouteTable> => {
      const byFlags = routesOfFlags(values.route, values.defaultRoute, values.proxyProtocol);
      return new RouteTable([byFlags, ...(values.config === undefined ? [] : [await readRouteFile(values.config)])]);
    };
    const routes = await load();
    const registry = createRegistry();
    const observer = routerMetrics(registry);
    const health = new Health({ log });
    // If the file is invalid, the old routes stay in use, and the program stays ready: a typo in a file that all replicas read must not
    // remove all of them from a balancer.
    const routesPart = health.part("routes");
    const listenPart = health.part("listen", { needed: "always" });
    await using _metrics = await serveMetrics({ registry, log }, values);
    await using _health = await serveHealth({ health, log }, { address: values.healthAddr });

    const group = new TaskGroup(signal);
    const onBug = (error: unknown): void =>
      group.spawn(async () => {
        throw error;
      });
    await using router = new SniRouter(
      { clock: systemClock, log, observer, onBug },
      {
        routes,
        maxConnections: clientsOf(log, files, maxConnections),
        maxNewcomers: files.newcomers,
        ...balancersOf(values),
        helloTimeoutMs: values.helloTimeout,
        connectTimeoutMs: values.connectTimeout,
      },
    );
    const addresses = values.listen.length === 0 ? [parseListenAddress(DEFAULT_LISTEN)] : values.listen;
    for (const address of addresses) {
      const port = await router.listen(address);
      log.info("listening", { address: formatListenAddress({ ...address, port }) });
    }
    listenPart.ok();
    routesPart.ok();
    log.info("routing", { routes: routes.routes.length, backends: routes.backends.size });

    group.spawn(async () => {
      for await (const _ of sighups) {
        const loaded = await reload({ load, log, health: routesPart });
        observer.reloaded(loaded === undefined ? "refused" : "ok");
        if (loaded !== undefined) router.setRoutes(loaded);
      }
    });
    await group.wait();
    listenPart.degraded(new Error("shutting down"));
    log.info("draining", { connections: router.connections, timeoutMs: values.drainTimeout });
    const cut = await router.drain({ timeoutMs: values.drainTimeout });
    log.info("ended", { cut });
    return EXIT.ok;
  },
});

/** Reads the routes again. If they are invalid, logs the fault and returns `undefined`. */
async function reload(at: {
  readonly load: () => Promise<RouteTable>;
  readonly log: Logger;
  readonly health: HealthPart;
}): Promise<RouteTable | undefined> {
  try {
    const routes = await at.load();
    at.health.ok();
    at.log.info("routes reloaded", { routes: routes.routes.length, backends: routes.backends.size });
    return routes;
  } catch (error) {
    if (!(error instanceof SniRouterError)) throw error;
    at.health.degraded(error);
    at.log.error("the new routes are invalid; the old routes stay in force", { error: error.message });
    return undefined;
  }
}

function routesOfFlags(
  named: readonly Pick<Route, "name" | "backends">[],
  byDefault: Route["backends"] | undefined,
  proxyProtocol: boolean,
): RouteSet {
  const routes = named.map((route) => ({ ...route, proxyProtocol }));
  if (byDefault === undefined) return { routes };
  return { routes, defaultRoute: { name: DEFAULT_ROUTE_NAME, backends: byDefault, proxyProtocol } };
}

function listenFlag(): Flag<readonly ListenAddress[]> {
  return {
    name: "listen",
    help: "address to listen on for TLS connections (may be given several times)",
    placeholder: "ADDRESS",
    defaultText: DEFAULT_LISTEN,
    initial: [],
    parse: (text, before) => [...before, parseListenAddress(text)],
  };
}

function routeFlag(): Flag<readonly Pick<Route, "name" | "backends">[]> {
  return {
    name: "route",
    help: "a route in addition to those of --config; NAME may begin with *. for any one label (may be given several times)",
    placeholder: "NAME=HOST:PORT,...",
    defaultText: undefined,
    initial: [],
    parse: (text, before) => [...before, parseRouteFlag(text)],
  };
}

/** Says how many files may be open. Returns the most clients for which they are enough, at most those of the flag. */
function clientsOf(log: Logger, files: OpenFiles, maxConnections: number): number {
  const connections = files.connections(2);
  if (connections >= maxConnections) return maxConnections;
  const needed = 2 * maxConnections + files.reserve;
  log.warn("the limit of open files is too low for --max-connections: raise the limit, or lower --max-connections", {
    limit: files.limit,
    needed,
  });
  return connections;
}
