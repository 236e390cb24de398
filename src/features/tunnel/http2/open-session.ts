import type { Server, Socket } from "node:net";
import { type TLSSocket, Server as TlsServer } from "node:tls";
import { systemClock } from "#base/clock";
import { type Header, Http2Code } from "#wire/http2";
import { type CertificateFault, certificateFault } from "../tls/client-fault.ts";
import { clientBehind } from "./client-behind.ts";
import { ConnectionSession } from "./connection-session.ts";
import type { ClientSession, IncomingCall, Session, SessionSettings } from "./session.ts";
import { SocketTransport, type Transport } from "./transport.ts";

/** Called for each session of a server; returns the handler of its streams, which gets the headers of each too, pseudo headers first. */
export type SessionHandler = (session: Session) => (call: IncomingCall, headers: readonly Header[]) => void;

/** The certificate that a TLS server requires of its clients, and the callback for clients that are refused. */
export interface ClientRules {
  /** Clients without a verified certificate are refused. The server was made without `rejectUnauthorized`, so that the refusal can say why. */
  readonly needsCertificate?: boolean;
  readonly onRefused?: (
    reason: CertificateFault | "alpn",
    client: { readonly peer: string; readonly text: string },
  ) => void;
}

/**
 * Serves the connections of a TCP, UNIX or TLS server; of a TLS server after the handshake. Connections of a TLS server without ALPN `h2` are
 * closed. Those without a certificate that `rules` ask for are told so by GOAWAY, and no stream of theirs is served.
 */
export function acceptSessions(
  server: Server,
  settings: SessionSettings,
  onSession: SessionHandler,
  rules: ClientRules = {},
): void {
  const accept = (socket: Socket): void => acceptSession(new SocketTransport(socket), settings, onSession);
  if (!(server instanceof TlsServer)) {
    server.on("connection", accept);
    return;
  }
  server.on("secureConnection", (socket: TLSSocket) => {
    if (socket.alpnProtocol !== "h2") {
      const text = "the client has not negotiated h2 by ALPN";
      rules.onRefused?.("alpn", { peer: peerOf(socket), text });
      socket.destroy();
      return;
    }
    const fault = rules.needsCertificate === true ? certificateFault(socket) : undefined;
    if (fault === undefined) {
      accept(socket);
      return;
    }
    rules.onRefused?.(fault.reason, { peer: peerOf(socket), text: fault.text });
    refuse(new SocketTransport(socket), settings, fault.text);
  });
}

/** Tells a client why it is refused, and closes its connection. Its streams have no handler. */
function refuse(transport: Transport, settings: SessionSettings, text: string): void {
  const session = new ConnectionSession(transport, "server", { settings, clock: systemClock });
  session.serve((call) => call.reset());
  session.expel(text, Http2Code.inadequateSecurity);
}

function peerOf(socket: TLSSocket): string {
  return clientBehind(socket) ?? `${socket.remoteAddress}:${socket.remotePort}`;
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
