import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createNetServer, type Socket } from "node:net";
import { ConnectionLimit } from "#base/connection-limit";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { NetNs } from "#kernel/netns";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { ServiceHealthError } from "../errors.ts";

/** Maximum of open connections (docs/spec/service-proxy.md#1.1). */
export const MAX_CONNECTIONS = 1024;
/** How long a client may take to send the head of its request, milliseconds (docs/spec/service-proxy.md#1.1). */
export const HEADERS_TIMEOUT_MS = 5000;
/** Interval of checks for clients that exceed {@link HEADERS_TIMEOUT_MS}, in milliseconds. */
const CHECKING_INTERVAL_MS = 1000;
/** How long a connection may be idle between two requests, in milliseconds: longer than load balancers pause between probes. */
const KEEP_ALIVE_MS = 75_000;
const BACKLOG = 1024;

/** Collaborators of a {@link ProbeHttp}. */
export interface ProbeHttpDeps {
  /** Network namespace to listen in; default: that of the process. */
  readonly netns?: Pick<NetNs, "fd"> | undefined;
  readonly log: Logger;
}

/** Limits of a {@link ProbeHttp}. */
export interface ProbeHttpOptions {
  /** Default {@link MAX_CONNECTIONS}. */
  readonly maxConnections?: number;
  /** Default {@link HEADERS_TIMEOUT_MS}. */
  readonly headersTimeoutMs?: number;
}

/** A listening socket. */
export interface Listener {
  readonly address: IpAddress;
  readonly port: number;
  /** Stops accepting connections; the port is free when this returns. Idempotent. */
  close(): void;
}

/** Answers a request; `at`: the listener of the connection. Must answer at once, or handle its own failures. */
export type ProbeHandler = (request: IncomingMessage, response: ServerResponse, at: Listener) => void;

/**
 * An HTTP server on any number of addresses. Each address has its own socket, bound to one family. The limits are shared by all sockets.
 */
export class ProbeHttp implements AsyncDisposable {
  readonly #netns: Pick<NetNs, "fd"> | undefined;
  readonly #log: Logger;
  readonly #http: Server;
  readonly #connections: ConnectionLimit;
  readonly #arrivals = new WeakMap<Socket, Listener>();
  readonly #listening = new Set<Listener>();

  constructor(handler: ProbeHandler, deps: ProbeHttpDeps, options: ProbeHttpOptions = {}) {
    const { headersTimeoutMs = HEADERS_TIMEOUT_MS, maxConnections = MAX_CONNECTIONS } = options;
    this.#netns = deps.netns;
    this.#log = deps.log;
    this.#connections = new ConnectionLimit(maxConnections, { whenAllBusy: "end-oldest" });
    this.#http = createServer(
      {
        headersTimeout: headersTimeoutMs,
        requestTimeout: headersTimeoutMs,
        keepAliveTimeout: KEEP_ALIVE_MS,
        connectionsCheckingInterval: Math.min(CHECKING_INTERVAL_MS, headersTimeoutMs),
      },
      (request, response) => {
        this.#connections.busy(request, response);
        const at = this.#arrivals.get(request.socket);
        if (at === undefined) response.destroy();
        else handler(request, response, at);
      },
    );
    // This server's own sockets accept the connections. The event `listening` makes Node.js check the timeouts of these connections.
    this.#http.emit("listening");
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /**
   * Listens on one address, which may be the wildcard of its family. `port` 0 lets the kernel choose. With `freebind`, also on one that the host does
   * not have, or not yet: IPv6 addresses are not usable before their duplicate address detection has ended. Throws
   * {@link ServiceHealthError} `cannot-listen` with the kernel's error as its cause.
   */
  listen(address: IpAddress, port: number, { freebind = false }: { readonly freebind?: boolean } = {}): Listener {
    const server = createNetServer({ allowHalfOpen: true, noDelay: true });
    const fd = this.#bind(address, port, freebind);
    server.listen({ fd });
    const listening: Listener = {
      address,
      port: localEndpoint(fd).port,
      close: () => {
        if (!this.#listening.delete(listening)) return;
        server.close();
      },
    };
    this.#listening.add(listening);
    server.on("connection", (socket: Socket) => {
      this.#connections.admit(socket);
      this.#arrivals.set(socket, listening);
      this.#http.emit("connection", socket);
    });
    // If accepting fails, for example because of a full descriptor table, the connection is refused and the listener continues.
    server.on("error", (error) =>
      this.#log.warn("cannot accept the connection of a health probe", { reason: describeError(error) }),
    );
    return listening;
  }

  /** Stops listening and ends all connections. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const listening of this.#listening) listening.close();
    this.#connections.destroyAll();
    // Ends the check of timeouts; this server has no socket of its own to close.
    this.#http.close();
  }

  #bind(address: IpAddress, port: number, freebind: boolean): number {
    try {
      return listenTcp(address, port, { netns: this.#netns, backlog: BACKLOG, freebind });
    } catch (error) {
      if (!isKernelError(error)) throw error;
      throw new ServiceHealthError("cannot-listen", error.message, { cause: error });
    }
  }
}

/** True if the error says that the host does not support the address's family. */
export function isFamilyMissing(error: unknown): boolean {
  const cause = error instanceof ServiceHealthError ? error.cause : error;
  return isKernelError(cause) && (cause.errno === "EAFNOSUPPORT" || cause.errno === "EADDRNOTAVAIL");
}
