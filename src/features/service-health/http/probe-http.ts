import { createServer as createNetServer, type Socket } from "node:net";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { NetNs } from "#kernel/netns";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { type EndpointAnswer, type EndpointRequest, HttpEndpoint, SOCKET_OPTIONS } from "#wire/http-endpoint";
import { ServiceHealthError } from "../errors.ts";

/** Maximum of open connections (docs/spec/service-proxy.md#1.1). */
export const MAX_CONNECTIONS = 1024;
/** Connections that wait to be accepted: the kernel's own limit (net.core.somaxconn). A client beyond it tries again only after a second. */
const BACKLOG = 4096;

/** Collaborators of a {@link ProbeHttp}. */
export interface ProbeHttpDeps {
  /** Network namespace to listen in; default: that of the process. */
  readonly netns?: Pick<NetNs, "fd"> | undefined;
  /** Called when an answer failed because of a bug: the program has to end. */
  readonly onBug: (error: unknown) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Limits of a {@link ProbeHttp}. */
export interface ProbeHttpOptions {
  /** Default {@link MAX_CONNECTIONS}. */
  readonly maxConnections?: number;
  /** Time for the head of a request, in milliseconds (docs/spec/service-proxy.md#1.1). Default 5,000. */
  readonly headersTimeoutMs?: number;
}

/** A listening socket. */
export interface Listener {
  readonly address: IpAddress;
  readonly port: number;
  /** Stops accepting connections; the port is free when this returns. Idempotent. */
  close(): void;
}

/** Answers a request; `at`: the listener of the connection. With nothing the connection ends. */
export type ProbeHandler = (
  request: EndpointRequest,
  at: Listener,
) => EndpointAnswer | undefined | Promise<EndpointAnswer | undefined>;

/**
 * An HTTP server on any number of addresses. Each address has its own socket, bound to one family. The limits are shared by all sockets.
 */
export class ProbeHttp implements AsyncDisposable {
  readonly #netns: Pick<NetNs, "fd"> | undefined;
  readonly #log: Logger;
  readonly #endpoint: HttpEndpoint<Listener>;
  readonly #listening = new Set<Listener>();

  constructor(handler: ProbeHandler, deps: ProbeHttpDeps, options: ProbeHttpOptions = {}) {
    const { netns, log, clock, onBug } = deps;
    const { headersTimeoutMs: headMs, maxConnections = MAX_CONNECTIONS } = options;
    this.#netns = netns;
    this.#log = log;
    this.#endpoint = new HttpEndpoint({ answer: handler, onBug, log, clock }, { maxConnections, headMs });
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#endpoint.connections;
  }

  /**
   * Listens on one address, which may be the wildcard of its family. `port` 0 lets the kernel choose. With `freebind`, also on one that the host does
   * not have, or not yet: IPv6 addresses are not usable before their duplicate address detection has ended. Throws
   * {@link ServiceHealthError} `cannot-listen` with the kernel's error as its cause.
   */
  listen(address: IpAddress, port: number, { freebind = false }: { readonly freebind?: boolean } = {}): Listener {
    const server = createNetServer(SOCKET_OPTIONS);
    const fd = this.#bind(address, port, freebind);
    // Node.js calls listen(2) again, with a shorter queue unless it is told. Of a descriptor it takes this form alone.
    server.listen({ fd }, BACKLOG);
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
      this.#endpoint.accept(socket, listening);
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
    await this.#endpoint[Symbol.asyncDispose]();
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
