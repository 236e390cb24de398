import { createServer, type Server, type Socket } from "node:net";
import type { Server as TlsServer } from "node:tls";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { Newcomers } from "#base/places";
import { RateLimitedLog } from "#base/rate-limit";
import { resetSocket } from "#base/socket-reset";
import { type ProxiedConnection, ProxyHeaderReader } from "#wire/proxy-protocol";
import { setClientBehind } from "../http2/client-behind.ts";

/** The time that a balancer may take for its header, in milliseconds. It has that before it has anything of its client. */
const HEADER_TIMEOUT_MS = 5000;

/** Bounds of clients that have not proved who they are, for each TCP listener. */
export interface NewcomerLimits {
  /** Connections at once; one address has at most half of it. */
  readonly max: number;
  /** Addresses of balancers, behind which many clients are: they are bounded by `max` alone. */
  readonly isBalancer?: ((address: string) => boolean) | undefined;
  /** Balancers send a PROXY header first, and what it says counts as the client's address. Default false. */
  readonly readsProxyHeaders?: boolean;
}

/** The listener in front of a TLS server. */
export interface Front {
  /** The server that has to listen: the TLS server itself, or one that hands it the connections. */
  readonly server: Server;
  /** Those that have proved themselves are to be told to it. */
  readonly newcomers: Newcomers;
}

/** Bounds the clients of a TLS server that have not proved themselves, and reads the headers of its balancers. */
export function frontOf(
  server: TlsServer,
  deps: { readonly clock: Clock; readonly log: Logger },
  limits: NewcomerLimits,
  { allowHalfOpen = false }: { readonly allowHalfOpen?: boolean } = {},
): Front {
  const { max, isBalancer, readsProxyHeaders = false } = limits;
  const newcomers = new Newcomers({
    clock: deps.clock,
    max,
    ...(isBalancer === undefined ? {} : { isShared: isBalancer }),
  });
  if (isBalancer === undefined || !readsProxyHeaders) {
    server.on("connection", (socket) => newcomers.admit(socket));
    return { server, newcomers };
  }
  const warnings = new RateLimitedLog(deps);
  /** The clients' addresses, by the `host:port` of the balancer's connection. Entries of connections that have ended are removed. */
  const clients = new Map<string, string>();
  server.prependListener("secureConnection", (socket) => {
    const client = clients.get(peerOf(socket));
    if (client !== undefined) setClientBehind(socket, client);
  });
  const front = createServer({ noDelay: true, allowHalfOpen }, (socket) => {
    if (!newcomers.admit(socket)) return;
    const balancer = socket.remoteAddress;
    if (balancer === undefined || !isBalancer(balancer)) {
      server.emit("connection", socket);
      return;
    }
    readHeader(socket, deps.clock, {
      onHeader: (connection) => {
        if (connection !== undefined) {
          const { address, port } = connection.source;
          if (!newcomers.attribute(socket, address.toString())) return;
          const peer = peerOf(socket);
          clients.set(peer, `${address}:${port}`);
          socket.once("close", () => clients.delete(peer));
        }
        server.emit("connection", socket);
      },
      onFault: (reason) => {
        warnings.warn("a balancer sent no PROXY header, and its client was refused", { balancer, reason });
        resetSocket(socket);
      },
    });
  });
  return { server: front, newcomers };
}

/** Reads the header; what comes after it stays in the socket. A client that leaves before is none. */
function readHeader(
  socket: Socket,
  clock: Clock,
  events: {
    readonly onHeader: (connection: ProxiedConnection | undefined) => void;
    readonly onFault: (reason: string) => void;
  },
): void {
  const reader = new ProxyHeaderReader();
  const stop = (): void => {
    cancel();
    socket.off("data", onData);
    socket.off("end", onEnd);
    socket.off("close", stop);
  };
  const fail = (reason: string): void => {
    stop();
    events.onFault(reason);
  };
  const onEnd = (): void => {
    stop();
    socket.destroy();
  };
  const onData = (piece: Buffer): void => {
    const progress = reader.push(piece);
    if (progress.kind === "more") return;
    if (progress.kind === "fault") {
      fail(progress.reason);
      return;
    }
    stop();
    socket.pause();
    if (progress.rest.length > 0) socket.unshift(progress.rest);
    events.onHeader(progress.connection);
  };
  const cancel = clock.after(HEADER_TIMEOUT_MS, () => fail(`none came within ${HEADER_TIMEOUT_MS / 1000} s`));
  socket.on("error", () => socket.destroy());
  socket.on("data", onData);
  socket.on("end", onEnd);
  socket.on("close", stop);
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress}:${remotePort}`;
}
