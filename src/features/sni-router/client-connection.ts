import type { Socket } from "node:net";
import type { Clock } from "#base/clock";
import { describeError, isAbortError } from "#base/errors";
import { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import type { Names } from "#base/names";
import { resetSocket } from "#base/socket-reset";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import { encodeProxyHeader, type ProxiedConnection } from "#wire/proxy-protocol";
import { encodeFatalAlert, type PlainAlert } from "#wire/tls-hello";
import type { BackendOrder } from "./backends.ts";
import { connectFirst } from "./dial.ts";
import { SniRouterError } from "./errors.ts";
import type { RouteResult, RouterObserver } from "./observer.ts";
import { peekHello } from "./peek.ts";
import { refuse, relay } from "./relay.ts";
import type { Route } from "./routes.ts";
import { UnroutedBytes } from "./unrouted-bytes.ts";

/** Maximum of bytes that a client may send before its backend is connected; one read of at most 64 KiB may exceed the limit. */
const MAX_UNROUTED_BYTES = 65_536;

/** The dependencies of a connection. */
export interface ClientConnectionDeps {
  readonly log: Logger;
  readonly clock: Clock;
  readonly names: Names;
  readonly observer: RouterObserver;
  readonly order: BackendOrder;
  readonly lookup: (serverName: string | undefined) => Route | undefined;
  /** Called when the client has sent its hello, or will not send one any more. */
  readonly onDecided: () => void;
  /** The client is a balancer that has to send a PROXY header. */
  readonly balancer: BalancerEvents | undefined;
}

/** A connection calls these when the PROXY header of its balancer was read, or is missing. */
export interface BalancerEvents {
  /** The header names a client. */
  onClient(address: string): void;
  /** There is no header. */
  onFault(reason: string): void;
}

/** One client: waits for its hello, dials its backend, passes its bytes on. */
export class ClientConnection {
  readonly #client: Socket;
  readonly #deps: ClientConnectionDeps;
  readonly #options: { readonly helloTimeoutMs: number; readonly connectTimeoutMs: number };
  readonly #unrouted: UnroutedBytes;
  /** The client's and the router's addresses, or what a balancer says in their place, for the PROXY header. `undefined` if the client has already left. */
  #addresses: ProxiedConnection | undefined;
  #state: "hello" | "evicted" | "decided" = "hello";
  #backend: Socket | undefined;

  constructor(
    client: Socket,
    deps: ClientConnectionDeps,
    options: { readonly helloTimeoutMs: number; readonly connectTimeoutMs: number },
  ) {
    this.#client = client;
    this.#deps = deps;
    this.#options = options;
    this.#addresses = addressesOf(client);
    // The close event follows the error, and is handled.
    client.on("error", (error) => deps.log.debug("a client's connection failed", { error }));
    this.#unrouted = new UnroutedBytes(client, MAX_UNROUTED_BYTES);
  }

  /** Closes the client, to make place for another one. */
  evict(): void {
    this.#state = "evicted";
    this.#client.destroy();
  }

  /** Resets both sides at once: a reader would take FIN for the end of an answer that was cut. */
  reset(): void {
    resetSocket(this.#client);
    if (this.#backend !== undefined) resetSocket(this.#backend);
  }

  /** Serves the client until both sides are closed. Has to be called in the tick of the accept, before the client's socket can close. */
  async run(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#client.once("close", () => resolve()));
    const { clock, balancer } = this.#deps;
    const onHeader = (connection: ProxiedConnection | undefined): void => {
      if (connection === undefined) return;
      this.#addresses = connection;
      balancer?.onClient(connection.source.address.toString());
    };
    const peeked = await peekHello(this.#unrouted, {
      timeoutMs: this.#options.helloTimeoutMs,
      clock,
      signal: this.#unrouted.gone,
      onHeader: balancer === undefined ? undefined : onHeader,
    });
    const wasEvicted = this.#state === "evicted";
    this.#state = "decided";
    this.#deps.onDecided();
    if (peeked.kind === "no_header") balancer?.onFault(peeked.reason);
    if (peeked.kind !== "hello") this.#end("", wasEvicted ? "overload" : peeked.kind);
    else await this.#route(peeked.hello.serverName);
    await closed;
  }

  async #route(serverName: string | undefined): Promise<void> {
    const route = this.#deps.lookup(serverName);
    if (route === undefined) {
      this.#deps.log.debug("a client's server name has no route", { serverName });
      this.#end("", serverName === undefined ? "no_name" : "unknown_name", "unrecognized_name");
      return;
    }
    const backend = await this.#dial(route);
    if (backend !== undefined) await this.#pass(route, backend);
  }

  async #dial(route: Route): Promise<Socket | undefined> {
    const { clock, names, log, observer, order } = this.#deps;
    const onFailure = (backend: HostPort, error: unknown): void => {
      const name = formatHostPort(backend);
      observer.backendFailed(name);
      if (order.failed(backend)) log.warn("a backend cannot be reached", { backend: name, error: failureText(error) });
    };
    try {
      const { socket, backend } = await connectFirst(order.next(route), {
        timeoutMs: this.#options.connectTimeoutMs,
        clock,
        names,
        signal: this.#unrouted.gone,
        onFailure,
      });
      if (order.connected(backend)) log.info("a backend is reached again", { backend: formatHostPort(backend) });
      return socket;
    } catch (error) {
      if (this.#unrouted.gone.aborted) this.#end(route.name, "gone");
      else if (error instanceof SniRouterError) this.#end(route.name, "no_backend", "internal_error");
      else throw error;
      return undefined;
    }
  }

  async #pass(route: Route, backend: Socket): Promise<void> {
    const { clock, observer } = this.#deps;
    this.#backend = backend;
    observer.decided(route.name, "routed");
    const { chunks, ended } = this.#unrouted.release();
    backend.cork();
    if (route.proxyProtocol && this.#addresses !== undefined) backend.write(encodeProxyHeader(this.#addresses));
    for (const chunk of chunks) {
      backend.write(chunk);
      observer.passed(route.name, "to_backend", chunk.length);
    }
    backend.uncork();
    if (ended) backend.end();
    await relay(this.#client, backend, {
      clock,
      onBytes: (direction, bytes) => observer.passed(route.name, direction, bytes),
    });
  }

  #end(route: string, result: RouteResult, alert?: PlainAlert): void {
    this.#deps.observer.decided(route, result);
    this.#unrouted.release();
    refuse(this.#client, alert === undefined ? undefined : encodeFatalAlert(alert), this.#deps.clock);
  }
}

function failureText(error: unknown): string {
  return isAbortError(error) ? "no answer" : describeError(error);
}

function addressesOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): ProxiedConnection | undefined {
  const source = endpoint(remoteAddress, remotePort);
  const destination = endpoint(localAddress, localPort);
  return source === undefined || destination === undefined ? undefined : { source, destination };
}

/** Reads an address and port. The zone of a link-local address is left out: it has no meaning for the backend. */
function endpoint(text: string | undefined, port: number | undefined): ProxiedConnection["source"] | undefined {
  const address = IpAddress.tryParse((text ?? "").split("%", 1)[0] ?? "");
  return address === undefined || port === undefined ? undefined : { address, port };
}
