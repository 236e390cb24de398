import { randomBytes } from "node:crypto";
import type { Server, Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Clock } from "#base/clock";
import { assertNever } from "#base/errors";
import { sendQueueBytes } from "#kernel/socket";
import {
  CONNECTION_ESTABLISHED,
  ConnectReader,
  encodeReply,
  formatHostPort,
  type HostPort,
  type ReplyStatus,
  statusOfDialError,
} from "#wire/http-connect";
import { tunnelId } from "#wire/konnectivity";
import { ReplyGate } from "../local/reply-gate.ts";
import { SocketSide } from "../local/socket-side.ts";
import type { Forwarder, ForwardFailure } from "./forward.ts";
import type { ServerMetrics } from "./metrics.ts";

/** How long a client may take to send its request, milliseconds (docs/spec/tunnel.md#5.4). */
const HEAD_TIMEOUT_MS = 60_000;

export interface ConnectFrontendDeps {
  readonly forwarder: Forwarder;
  readonly metrics: ServerMetrics;
  readonly clock: Clock;
}

/**
 * Serves HTTP CONNECT on a TCP, TLS or UNIX server made with `allowHalfOpen` (docs/spec/tunnel.md#6). `event` is `secureConnection`
 * for TLS.
 */
export function serveConnectFrontends(
  server: Server,
  deps: ConnectFrontendDeps,
  options: { readonly event?: "connection" | "secureConnection" } = {},
): void {
  server.on(options.event ?? "connection", (socket: Socket) => serveClient(socket, deps));
}

function serveClient(socket: Socket, deps: ConnectFrontendDeps): void {
  deps.metrics.httpConnections(1);
  socket.once("close", () => deps.metrics.httpConnections(-1));
  // The close event follows the error.
  socket.on("error", () => undefined);
  const timer = setTimeout(() => socket.destroy(), HEAD_TIMEOUT_MS);
  timer.unref();
  const reader = new ConnectReader();
  const onData = (chunk: Uint8Array): void => {
    const progress = reader.push(chunk);
    if (progress.kind === "need-more") return;
    stop();
    if (progress.kind === "refused") refuse(socket, progress.status, progress.body);
    else dial(socket, progress.target, progress.rest, deps);
  };
  const onEnd = (): void => {
    stop();
    socket.destroy();
  };
  const stop = (): void => {
    clearTimeout(timer);
    socket.off("data", onData);
    socket.off("side", onEnd);
    socket.pause();
  };
  socket.on("data", onData);
  socket.once("side", onEnd);
  socket.once("close", () => clearTimeout(timer));
}

function dial(socket: Socket, target: HostPort, rest: Uint8Array, { forwarder, clock }: ConnectFrontendDeps): void {
  const side = new SocketSide(socket);
  const local = new ReplyGate(side, clock);
  const connection = forwarder.dial(
    {
      protocol: "tcp",
      address: formatHostPort(target),
      random: tunnelId(randomBytes(8).readBigUInt64BE() >> 1n),
      local,
      localHalfClose: true,
    },
    {
      onOpen: () => {
        socket.write(CONNECTION_ESTABLISHED, () => local.replied(() => hasReadAll(socket)));
      },
      onFailed: (failure) => {
        const [status, body] = replyTo(failure);
        refuse(socket, status, body);
      },
      onClosed: () => undefined,
    },
  );
  if (connection === undefined) return;
  // A client that closes, or ends its sending, before the tunnel is open cancels the dial.
  side.watch(
    { onEof: () => connection.localEof(), onGone: () => connection.localGone() },
    rest.length > 0 ? [rest] : [],
  );
}

/**
 * Whether the client has read everything that was written. Always true over TLS: each write is a record, and a reader gets one record at a
 * time.
 */
function hasReadAll(socket: Socket): boolean {
  const fd = socket instanceof TLSSocket ? undefined : descriptorOf(socket);
  return fd === undefined || sendQueueBytes(fd) === 0;
}

/** The file descriptor of a socket; `undefined` once the socket is closed. */
function descriptorOf(socket: Socket): number | undefined {
  const { _handle: handle } = socket as unknown as { readonly _handle?: { readonly fd: number } | null };
  return handle === null || handle === undefined || handle.fd < 0 ? undefined : handle.fd;
}

function refuse(socket: Socket, status: ReplyStatus, body: string): void {
  socket.end(encodeReply(status, body));
  // Discard the client's further bytes: closing with unread bytes would reset the connection and lose the reply.
  socket.removeAllListeners("data");
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), 1000);
  timer.unref();
  socket.once("side", () => socket.destroySoon());
  socket.once("close", () => clearTimeout(timer));
}

function replyTo(failure: ForwardFailure): readonly [ReplyStatus, string] {
  switch (failure.kind) {
    case "no-agent":
      return [503, "currently no tunnels available: no agent is connected"];
    case "limit":
      return [503, "currently no tunnels available: too many connections"];
    case "timeout":
      return [504, "timed out waiting for backend dial"];
    case "refused":
      return [statusOfDialError(failure.error), failure.error];
    case "aborted":
      return [502, "the agent cancelled the connection"];
    case "link-lost":
      return [502, "the connection to the agent was lost while dialing"];
    case "duplicate":
    case "address":
    case "protocol":
      return [502, `the dial failed: ${failure.kind}`];
    default:
      return assertNever(failure);
  }
}
