import type { Server, Socket } from "node:net";
import { type TLSSocket, Server as TlsServer } from "node:tls";
import { systemClock } from "#base/clock";
import type { Header } from "#wire/http2";
import { ConnectionSession } from "./connection-session.ts";
import type { ClientSession, IncomingCall, Session, SessionSettings } from "./session.ts";
import { SocketTransport, type Transport } from "./transport.ts";

/** Called for each session of a server; returns the handler of its streams, which gets the headers of each too, pseudo headers first. */
export type SessionHandler = (session: Session) => (call: IncomingCall, headers: readonly Header[]) => void;

/**
 * Serves the connections of a TCP, UNIX or TLS server; of a TLS server after the handshake. Connections of a TLS server without ALPN `h2` are
 * closed.
 */
export function acceptSessions(server: Server, settings: SessionSettings, onSession: SessionHandler): void {
  const accept = (socket: Socket): void => acceptSession(new SocketTransport(socket), settings, onSession);
  if (!(server instanceof TlsServer)) {
    server.on("connection", accept);
    return;
  }
  server.on("secureConnection", (socket: TLSSocket) => {
    if (socket.alpnProtocol === "h2") accept(socket);
    else socket.destroy();
  });
}

/** Serves one connection. */
export function acceptSession(transport: Transport, settings: SessionSettings, onSession: SessionHandler): void {
  const session = new ConnectionSession(transport, "server", { settings, clock: systemClock });
  session.serve(onSession(session));
}

/** Starts a session on a connected socket, which it owns. */
export function openSession(socket: Socket, settings: SessionSettings): ClientSession {
  return new ConnectionSession(new SocketTransport(socket), "client", { settings, clock: systemClock });
}
