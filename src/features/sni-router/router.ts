import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { Deferred } from "#base/async";
import type { Clock } from "#base/clock";
import { formatListenAddress, type ListenAddress } from "#base/config";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { type Names, SystemNames } from "#base/names";
import { Newcomers } from "#base/places";
import { RateLimitedLog } from "#base/rate-limit";
import { resetSocket } from "#base/socket-reset";
import { BackendOrder } from "./backends.ts";
import { type BalancerEvents, ClientConnection } from "./client-connection.ts";
import { TCP_KEEPALIVE_MS } from "./dial.ts";
import { SniRouterError } from "./errors.ts";
import type { RouterObserver } from "./observer.ts";
import { RoutedClients } from "./routed-clients.ts";
import type { RouteTable } from "./routes.ts";

/** Backlog of the listening sockets. */
const BACKLOG = 1024;

/** The dependencies of the router. */
export interface SniRouterDeps {
  readonly log: Logger;
  readonly observer: RouterObserver;
  /** Receives unexpected errors; the program should end. */
  readonly onBug: (error: unknown) => void;
  readonly clock: Clock;
  /** Default: the system's resolver configuration. */
  readonly names?: Names;
}

/** Settings of the router. */
export interface SniRouterOptions {
  readonly routes: RouteTable;
  /**
   * Maximum of clients at once; each client has two sockets. One more client replaces a client without a hello, of the address that has the most, or else the oldest
   * one of another address that has more than half of all.
   */
  readonly maxConnections: number;
  /**
   * Maximum of clients at once that have sent no hello yet; one address has at most half of it. Default: a quarter of `maxConnections`, at least 16.
   */
  readonly maxNewcomers?: number;
  /** Addresses of balancers: their clients are bounded by `maxNewcomers` and `maxConnections` alone. Default: none. */
  readonly isBalancer?: ((address: string) => boolean) | undefined;
  /** Balancers send a PROXY header first, and what it says counts as the client's address. Default false. */
  readonly readsProxyHeaders?: boolean;
  /** The time that a client may take to send its hello, in milliseconds. Default 5,000 (docs/spec/tunnel.md#9.7). */
  readonly helloTimeoutMs?: number;
  /** The time that connecting to a backend may take, all attempts together, in milliseconds. Default 5,000. */
  readonly connectTimeoutMs?: number;
}

/** Passes TLS connections on by the server name of their clients, without ending TLS (docs/spec/tunnel.md#9.7). */
export class SniRouter implements AsyncDisposable {
  readonly #deps: Required<SniRouterDeps>;
  readonly #options: SniRouterOptions;
  readonly #order: BackendOrder;
  readonly #servers: Server[] = [];
  readonly #connections = new Map<Socket, ClientConnection>();
  readonly #newcomers: Newcomers;
  readonly #routed: RoutedClients;
  readonly #warnings: RateLimitedLog;
  #routes: RouteTable;
  #idle: Deferred | undefined;

  constructor(deps: SniRouterDeps, options: SniRouterOptions) {
    this.#deps = { names: new SystemNames({ clock: deps.clock }), ...deps };
    this.#options = options;
    this.#order = new BackendOrder(this.#deps.clock);
    this.#routes = options.routes;
    this.#warnings = new RateLimitedLog(deps);
    const { maxConnections, maxNewcomers = Math.max(16, Math.floor(maxConnections / 4)) } = options;
    this.#routed = new RoutedClients(maxConnections);
    this.#newcomers = new Newcomers({
      clock: deps.clock,
      max: maxNewcomers,
      ...(options.isBalancer === undefined ? {} : { isShared: options.isBalancer }),
      end: (socket) => this.#evict(socket),
    });
  }

  /** Number of connected clients, in any state. */
  get connections(): number {
    return this.#connections.size;
  }

  /** Replaces the routes for clients whose hello comes from now on. Connected clients stay with their backends. */
  setRoutes(routes: RouteTable): void {
    this.#routes = routes;
    this.#order.keepOnly(routes);
  }

  /** Listens on one more address; resolves with its port. Throws {@link SniRouterError} `cannot-listen`. */
  async listen(address: ListenAddress): Promise<number> {
    const keepAlive = { keepAlive: true, keepAliveInitialDelay: TCP_KEEPALIVE_MS };
    const server = createServer({ allowHalfOpen: true, noDelay: true, ...keepAlive }, (client) => this.#accept(client));
    const { promise, resolve, reject } = new Deferred();
    server.once("error", reject);
    server.listen({ ...address, backlog: BACKLOG }, resolve);
    try {
      await promise;
    } catch (error) {
      const where = formatListenAddress(address);
      throw new SniRouterError("cannot-listen", `cannot listen on ${where}: ${describeError(error)}`, { cause: error });
    }
    server.off("error", reject);
    server.on("error", (error) => this.#deps.log.error("a listener of the router failed", { address, error }));
    this.#servers.push(server);
    return (server.address() as AddressInfo).port;
  }

  /**
   * Stops listening, waits at most `timeoutMs` until all clients have left, and resets the rest. Resolves with the number of reset
   * clients.
   */
  async drain({ timeoutMs }: { readonly timeoutMs: number }): Promise<number> {
    const closed = this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
    await this.#emptyWithin(timeoutMs);
    const rest = [...this.#connections.values()];
    for (const connection of rest) connection.reset();
    await this.#emptyWithin(undefined);
    await Promise.all(closed);
    return rest.length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.drain({ timeoutMs: 0 });
  }

  async #emptyWithin(timeoutMs: number | undefined): Promise<void> {
    if (this.#connections.size === 0) return;
    const idle = new Deferred();
    this.#idle = idle;
    const cancel = timeoutMs === undefined ? undefined : this.#deps.clock.after(timeoutMs, () => idle.resolve());
    await idle.promise;
    cancel?.();
  }

  #accept(client: Socket): void {
    // When all places are taken, a client without a hello goes, of the address that has the most.
    const isFull = this.#connections.size >= this.#options.maxConnections;
    if (isFull && !this.#newcomers.makeRoom() && !this.#endRouted(client)) {
      this.#deps.observer.decided("", "overload");
      client.on("error", () => client.destroy());
      resetSocket(client);
      return;
    }
    if (!this.#newcomers.admit(client)) {
      this.#deps.observer.decided("", "overload");
      return;
    }
    const { helloTimeoutMs = 5000, connectTimeoutMs = 5000 } = this.#options;
    const lookup = (name: string | undefined) => this.#routes.lookup(name);
    let { remoteAddress: address } = client;
    const onDecided = (): void => {
      this.#newcomers.known(client);
      const isShared = address !== undefined && this.#options.isBalancer?.(address) === true;
      if (!isShared && this.#connections.has(client)) this.#routed.add(client, address);
    };
    const onClient = (named: string): void => {
      address = named;
    };
    const balancer = this.#hasHeader(client) ? this.#balancerEvents(client, onClient) : undefined;
    const deps = { ...this.#deps, order: this.#order, lookup, onDecided, balancer };
    const connection = new ClientConnection(client, deps, { helloTimeoutMs, connectTimeoutMs });
    this.#connections.set(client, connection);
    this.#deps.observer.connected(this.#connections.size);
    void connection
      .run()
      .catch(this.#deps.onBug)
      .finally(() => this.#forget(client, connection));
  }

  #hasHeader({ remoteAddress }: Socket): boolean {
    const { isBalancer, readsProxyHeaders = false } = this.#options;
    return readsProxyHeaders && remoteAddress !== undefined && isBalancer?.(remoteAddress) === true;
  }

  #balancerEvents(client: Socket, onClient: (address: string) => void): BalancerEvents {
    const balancer = client.remoteAddress;
    return {
      onClient: (address) => {
        onClient(address);
        if (!this.#newcomers.attribute(client, address)) this.#connections.get(client)?.evict();
      },
      // Each client of a balancer that is not configured for it comes here.
      onFault: (reason) =>
        this.#warnings.warn("a balancer sent no PROXY header, and its client was refused", { balancer, reason }),
    };
  }

  #forget(client: Socket, connection: ClientConnection): void {
    connection.reset();
    this.#connections.delete(client);
    this.#routed.remove(client);
    this.#deps.observer.connected(this.#connections.size);
    if (this.#connections.size === 0) this.#idle?.resolve();
  }

  /** Ends a client with a hello, of an address that has more than half of all places, for one of another address. Returns false if there is none. */
  #endRouted({ remoteAddress }: Socket): boolean {
    const loser = this.#routed.loserFor(remoteAddress);
    if (loser === undefined) return false;
    const from = loser.remoteAddress;
    this.#warnings.warn("all places are taken: an address that has more than half of them lost its oldest client", {
      from,
    });
    this.#connections.get(loser)?.reset();
    this.#connections.delete(loser);
    this.#routed.remove(loser);
    return true;
  }

  #evict(client: Socket): void {
    this.#connections.get(client)?.evict();
    this.#connections.delete(client);
  }
}
