import { createServer, type Server as NetServer, type Socket } from "node:net";
import type { Clock } from "#base/clock";
import { LinkedSet } from "#base/collections";
import { formatListenAddress, type ListenAddress } from "#base/config";
import { describeError, ExpectedError } from "#base/errors";
import { Health, type HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { claimSocketPath, type KeptSocket, keepSocket, listenOnPath } from "#base/unix-socket";

/** Backlog of the listening socket: there is one connection for each proxied connection of an API server. */
export const BACKLOG = 4096;
/** Umask of the socket's file: owner and group of the socket may connect (docs/spec/tunnel.md#6). */
export const UDS_UMASK = 0o007;

export type ListenerErrorCode = "cannot-listen";

/** Listening on an address has failed. */
export class ListenerError extends ExpectedError<ListenerErrorCode> {
  override readonly name = "ListenerError";
}

/** The address to listen on. */
export type ListenTarget =
  | {
      readonly kind: "tcp";
      readonly address: ListenAddress;
      /** Workers of one program listen on the address together, and the kernel spreads the clients (SO_REUSEPORT of socket(7)). */
      readonly isShared?: boolean;
    }
  | { readonly kind: "uds"; readonly path: string; readonly deleteExisting: boolean };

/** A listening socket and its accepted connections, which end with it. */
export interface Listener extends AsyncDisposable {
  /** Bytes of all connections since the start, counted as on the wire. */
  readonly bytes: { readonly received: number; readonly sent: number };
  /** Stops accepting connections; open ones continue. Idempotent. */
  stopAccepting(): void;
  /** Set by a worker: clients of a UNIX socket are left to other workers. Clients of a shared TCP address are not: the kernel has chosen a worker. */
  isPaused: boolean;
}

export interface SocketListenerDeps {
  readonly log: Logger;
  readonly clock: Clock;
  readonly onBug: (error: unknown) => void;
  /** The state of a UNIX socket's file. Default: it is only logged. */
  readonly health?: HealthPart;
}

/**
 * A TCP, TLS or UNIX server of Node. It is not an HTTP/2 server: closing an HTTP/2 server would send GOAWAY on every session, and a Go agent
 * then drops all its connections.
 */
export class SocketListener implements Listener {
  isPaused = false;
  readonly #server: NetServer;
  /** Listens again when the file of a UNIX socket is lost. */
  #kept: KeptSocket | undefined;
  readonly #sockets = new LinkedSet<Socket>();
  /** Bytes of sockets that are closed. */
  #received = 0;
  #sent = 0;

  private constructor(server: NetServer) {
    this.#server = server;
    server.on("connection", (socket: Socket) => {
      const entry = this.#sockets.add(socket);
      socket.once("close", () => {
        entry.remove();
        this.#received += socket.bytesRead;
        this.#sent += socket.bytesWritten;
      });
    });
  }

  /** Starts listening. Rejects with {@link ListenerError} or `SocketPathError`. */
  static async open(server: NetServer, place: ListenTarget, deps: SocketListenerDeps): Promise<Listener> {
    const listener = new SocketListener(server);
    if (place.kind === "tcp") await listenOnAddress(server, place.address, { reusePort: place.isShared === true });
    else listener.#kept = await keepOnSocket(server, place, deps);
    // If accepting fails, for example because of a full descriptor table, the client is refused and the listener continues.
    server.on("error", (error) => deps.log.warn("cannot accept a connection", { reason: describeError(error) }));
    return listener;
  }

  get bytes(): { readonly received: number; readonly sent: number } {
    let [received, sent] = [this.#received, this.#sent];
    for (const socket of this.#sockets) {
      received += socket.bytesRead;
      sent += socket.bytesWritten;
    }
    return { received, sent };
  }

  stopAccepting(): void {
    if (this.#server.listening) this.#server.close();
    // Else the socket would be listened on again.
    this.#kept?.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stopAccepting();
    await Promise.all(
      Array.from(this.#sockets, (socket) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        socket.once("close", () => resolve());
        socket.destroy();
        return promise;
      }),
    );
  }
}

/**
 * Checks that nobody listens on an address that workers will share: with SO_REUSEPORT they would join another program of the same user. Rejects
 * with {@link ListenerError}.
 */
export async function claimAddress(address: ListenAddress): Promise<void> {
  const server = createServer();
  await listenOnAddress(server, address, { reusePort: false });
  await new Promise<void>((resolve) => server.close(() => resolve()));
}

async function listenOnAddress(
  server: NetServer,
  address: ListenAddress,
  options: { readonly reusePort: boolean },
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onError = (error: Error): void => {
    const where = formatListenAddress(address);
    reject(new ListenerError("cannot-listen", `cannot listen on ${where}: ${error.message}`, { cause: error }));
  };
  server.once("error", onError);
  server.listen({ ...address, ...options, backlog: BACKLOG }, resolve);
  await promise;
  server.off("error", onError);
}

/** Rejects with `SocketPathError`. */
async function keepOnSocket(
  server: NetServer,
  { path, deleteExisting }: ListenTarget & { readonly kind: "uds" },
  { log, clock, onBug, health = new Health({ log }).part("frontends") }: SocketListenerDeps,
): Promise<KeptSocket> {
  const serve = async (): Promise<AsyncDisposable> => {
    await claimSocketPath(path, { deleteExisting });
    const listening = await listenOnPath(server, path, { umask: UDS_UMASK });
    // Closing the server removes the file. `process.exit` alone would leave it.
    const close = (): void => listening.close();
    process.once("exit", close);
    return {
      async [Symbol.asyncDispose]() {
        process.off("exit", close);
        close();
      },
    };
  };
  return keepSocket(serve, { path, health, log, clock, onBug });
}
