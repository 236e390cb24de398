import { createServer, type Server, type Socket } from "node:net";
import type { Clock } from "#base/clock";
import { LinkedSet } from "#base/collections";
import { describeError, ExpectedError } from "#base/errors";
import { type Cidr, IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { Newcomers } from "#base/places";
import { TokenBucket } from "#base/rate-limit";
import { resetSocket } from "#base/socket-reset";
import { formatHostPort } from "#wire/http-connect";
import { type DialFailure, DialledConnection } from "../dial/dialled-connection.ts";
import { freshRandom } from "../dial/fresh-random.ts";
import { DialWait } from "../link/session.ts";
import { SocketSide } from "../local/socket-side.ts";
import type { AgentLink } from "./agent-link.ts";
import type { AgentMetrics } from "./metrics.ts";
import { type Interfaces, OwnAddresses } from "./own-addresses.ts";
import type { Target } from "./target.ts";

/** Backlog of the listening sockets. */
const BACKLOG = 4096;
/** The time to wait for the server's DIAL_RSP, in milliseconds. */
const DIAL_TIMEOUT_MS = 10_000;
/** The most servers that are tried for one connection. */
const MAX_SERVERS = 2;

export type ReverseListenerErrorCode = "cannot-listen";

/** Listening on a bind address has failed. */
export class ReverseListenerError extends ExpectedError<ReverseListenerErrorCode> {
  override readonly name = "ReverseListenerError";
}

export interface ReverseListenerDeps {
  /** The streams that new connections may use. */
  readonly links: () => readonly AgentLink[];
  readonly metrics: AgentMetrics;
  readonly clock: Clock;
  readonly log: Logger;
  /** Addresses of this machine. Default: those of the kernel. */
  readonly interfaces?: Interfaces;
}

export interface ReverseListenerOptions {
  readonly bindAddresses: readonly IpAddress[];
  readonly targets: readonly Target[];
  /** Sources that may connect besides the machine itself; empty: any source. */
  readonly allowedSources: readonly Cidr[];
  /** The most clients at once; one address has at most half of them, as nobody asks them who they are. Default: no bound. */
  readonly maxClients?: number;
  /** See `DialledConnectionOptions.halfCloseTimeoutMs`. */
  readonly halfCloseTimeoutMs: number;
  readonly closeLingerMs?: number | undefined;
  /** Workers of one program listen on the addresses together (SO_REUSEPORT of socket(7)). */
  readonly isShared?: boolean;
}

/** A local client whose connection is being dialled. */
interface Client {
  readonly socket: Socket;
  readonly local: SocketSide;
  readonly target: Target;
  readonly tried: Set<AgentLink>;
  connection: DialledConnection | undefined;
}

/** Listens on the bind addresses for local clients of the control plane (docs/spec/tunnel.md#9.3, #9.4). */
export class ReverseListener implements AsyncDisposable {
  readonly #deps: ReverseListenerDeps;
  readonly #options: ReverseListenerOptions;
  readonly #servers: Server[] = [];
  readonly #sockets = new LinkedSet<Socket>();
  readonly #warnings = new Map<string, TokenBucket>();
  readonly #own: OwnAddresses;
  readonly #places: Newcomers | undefined;
  #nextEqual = 0;

  private constructor(deps: ReverseListenerDeps, options: ReverseListenerOptions) {
    this.#deps = deps;
    this.#options = options;
    const onFault = (error: unknown): void =>
      deps.log.warn("this machine's addresses cannot be read; those that were known are used", {
        error: describeError(error),
      });
    this.#own = new OwnAddresses({ clock: deps.clock, onFault }, deps.interfaces);
    // Of an address that has its share, the next connection is refused and not an open one ended. When all places are taken, the address with the most loses its oldest.
    const max = options.maxClients;
    if (max !== undefined) this.#places = new Newcomers({ clock: deps.clock, max, graceMs: Number.POSITIVE_INFINITY });
  }

  /** Listens on every address and port. Rejects with {@link ReverseListenerError}; then no address is listened on. */
  static async open(deps: ReverseListenerDeps, options: ReverseListenerOptions): Promise<ReverseListener> {
    const listener = new ReverseListener(deps, options);
    try {
      for (const address of options.bindAddresses) {
        for (const target of options.targets) await listener.#listen(address.toString(), target);
      }
    } catch (error) {
      await listener[Symbol.asyncDispose]();
      throw error;
    }
    return listener;
  }

  /** Checks that nobody listens on the addresses that workers will share. Rejects with {@link ReverseListenerError}. */
  static async claim({
    bindAddresses,
    targets,
  }: Pick<ReverseListenerOptions, "bindAddresses" | "targets">): Promise<void> {
    for (const address of bindAddresses) {
      for (const { localPort } of targets) {
        const server = createServer();
        await listenOn(server, { host: address.toString(), port: localPort });
        await new Promise<void>((resolve) => server.close(() => resolve()));
      }
    }
  }

  /** True if at least one connected server serves the reverse direction. */
  get hasServer(): boolean {
    return this.#deps.links().some(({ mux }) => mux.reverse);
  }

  async #listen(host: string, target: Target): Promise<void> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) =>
      this.#accept(socket, target),
    );
    await listenOn(server, { host, port: target.localPort, reusePort: this.#options.isShared === true });
    // If accepting fails, for example because of a full descriptor table, the client is refused and the listener continues.
    server.on("error", (error) => this.#warn(target, `cannot accept: ${error.message}`));
    this.#servers.push(server);
  }

  #accept(socket: Socket, target: Target): void {
    const entry = this.#sockets.add(socket);
    socket.once("close", () => entry.remove());
    const { metrics } = this.#deps;
    metrics.reverseAccepted(target.address);
    if (!this.#isAllowed(socket)) {
      this.#refuse(socket, target, "source", `${socket.remoteAddress} is not in --allowed-source`);
      return;
    }
    if (this.#places?.admit(socket) === false) {
      this.#refuse(socket, target, "limit", `${socket.remoteAddress} has its share of the connections already`);
      return;
    }
    const client: Client = { socket, local: new SocketSide(socket), target, tried: new Set(), connection: undefined };
    // The client's bytes wait while the server is dialled. The end of its sending is handled when the connection is open.
    client.local.watch({ onLocalEof: () => undefined, onLocalGone: () => client.connection?.onLocalGone() });
    this.#dial(client);
  }

  #dial(client: Client): void {
    const { target, local, tried } = client;
    const link = this.#choose(tried);
    if (link === undefined) {
      this.#refuse(client.socket, target, "no_server", "no connected proxy server accepts connections from nodes");
      return;
    }
    tried.add(link);
    const { metrics, clock } = this.#deps;
    const wait = new DialWait(link.pulse, clock);
    let state: "dialing" | "open" | "failed" = "dialing";
    const connection = DialledConnection.dial(
      link.mux,
      { protocol: "tcp", address: target.address, random: freshRandom() },
      {
        local,
        localHalfClose: true,
        clock,
        dialTimeoutMs: DIAL_TIMEOUT_MS,
        halfCloseTimeoutMs: this.#options.halfCloseTimeoutMs,
        closeLingerMs: this.#options.closeLingerMs,
        observer: {
          onOpen: () => {
            state = "open";
            metrics.reverseConnections(1);
          },
          onFailed: (failure) => {
            state = "failed";
            if (failure.kind === "timeout") wait.timedOut();
            this.#failed(client, failure);
          },
          onClosed: () => {
            if (state === "open") metrics.reverseConnections(-1);
            if (state === "dialing") wait.givenUp();
          },
        },
      },
    );
    if (connection instanceof DialledConnection) client.connection = connection;
    // The link has not taken the dial because it is full or has just closed: another link is tried.
    else this.#dial(client);
  }

  /** Tries another server after a failed dial if possible: no byte was sent yet. */
  #failed(client: Client, failure: DialFailure): void {
    const { socket, target, tried } = client;
    const couldNotConnect = failure.kind === "refused" && failure.error.startsWith("dial ");
    const again = couldNotConnect || failure.kind === "link-lost" || failure.kind === "timeout";
    if (again && tried.size < MAX_SERVERS && !socket.destroyed && this.#choose(tried) !== undefined) {
      this.#dial(client);
      return;
    }
    const why = failure.kind === "refused" ? failure.error : failure.kind;
    this.#refuse(socket, target, failure.kind === "refused" && !couldNotConnect ? "denied" : "dial", why);
  }

  #refuse(
    socket: Socket,
    target: Target,
    reason: "no_server" | "denied" | "dial" | "source" | "limit",
    why: string,
  ): void {
    this.#deps.metrics.reverseFailed(reason);
    this.#warn(target, why);
    resetSocket(socket);
  }

  /**
   * The link with the fewest connections and pending dials; links with equal numbers take turns. One that answers nothing has few
   * connections: a link in doubt is used only if all are.
   */
  #choose(tried: ReadonlySet<AgentLink>): AgentLink | undefined {
    const load = ({ mux }: AgentLink): number => mux.connections + mux.pendingDials;
    const usable = this.#deps.links().filter((link) => link.mux.reverse && !tried.has(link));
    const sound = usable.filter(({ pulse }) => !pulse.isInDoubt);
    const from = sound.length > 0 ? sound : usable;
    const least = Math.min(...from.map(load));
    const equal = from.filter((link) => load(link) === least);
    this.#nextEqual += 1;
    return equal[this.#nextEqual % Math.max(1, equal.length)];
  }

  #isAllowed(socket: Socket): boolean {
    const { allowedSources } = this.#options;
    if (allowedSources.length === 0) return true;
    const source = IpAddress.tryParse(socket.remoteAddress ?? "");
    if (source === undefined) return false;
    // By the address of a Service the node's own programs come from any of its addresses.
    return allowedSources.some((range) => range.contains(source)) || this.#own.has(source);
  }

  /** Logs at most one line a second for a target. */
  #warn(target: Target, why: string): void {
    const limit =
      this.#warnings.get(target.address) ?? new TokenBucket({ ratePerSecond: 1, burst: 1, clock: this.#deps.clock });
    this.#warnings.set(target.address, limit);
    if (limit.tryTake())
      this.#deps.log.warn("a connection to a bind address was refused", { target: target.address, reason: why });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) resetSocket(socket);
    await Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }
}

/** Rejects with {@link ReverseListenerError}. */
async function listenOn(
  server: Server,
  place: { readonly host: string; readonly port: number; readonly reusePort?: boolean },
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onError = (error: Error): void => {
    const text = `cannot listen on ${formatHostPort(place)}: ${error.message}`;
    reject(new ReverseListenerError("cannot-listen", text, { cause: error }));
  };
  server.once("error", onError);
  server.listen({ ...place, backlog: BACKLOG }, resolve);
  await promise;
  server.off("error", onError);
}
