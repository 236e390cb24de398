import type { TLSSocket } from "node:tls";

/** The reason why a client's certificate is refused: label values of `connections_refused_total` (docs/spec/tunnel.md#12). */
export type CertificateFault = "certificate_missing" | "certificate_expired" | "certificate_untrusted";

/** A fault of a client's TLS: what is counted, and what is said to people. */
export interface ClientFault<Reason = CertificateFault> {
  readonly reason: Reason;
  readonly text: string;
}

/** OpenSSL's names of faults of time; every other fault is one of trust. */
const TIME_FAULTS: ReadonlySet<string> = new Set(["CERT_HAS_EXPIRED", "CERT_NOT_YET_VALID"]);

/**
 * The fault of a client's certificate after the handshake; `undefined` if it is verified. A session that is resumed without a certificate counts as
 * verified for Node.js, and not here.
 */
export function certificateFault(socket: TLSSocket): ClientFault | undefined {
  if (socket.getPeerX509Certificate() === undefined) {
    return { reason: "certificate_missing", text: "the client has no certificate" };
  }
  return socket.authorized ? undefined : faultOfCode(String(socket.authorizationError));
}

/** The fault of a handshake that has failed; `undefined` if the client has only left. */
export function handshakeFault(
  error: Error,
  socket: Pick<TLSSocket, "authorizationError">,
): ClientFault<CertificateFault | "tls" | "alpn"> | undefined {
  const refused: unknown = socket.authorizationError;
  if (typeof refused === "string" && refused !== "") return faultOfCode(refused);
  const code = "code" in error ? error.code : undefined;
  if (code === "ECONNRESET") return undefined;
  if (code === "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE") {
    return { reason: "certificate_missing", text: "the client has no certificate" };
  }
  if (code === "ERR_SSL_NO_APPLICATION_PROTOCOL") {
    return { reason: "alpn", text: "the client offers none of the application protocols of this port" };
  }
  return { reason: "tls", text: error.message };
}

function faultOfCode(code: string): ClientFault {
  const reason = TIME_FAULTS.has(code) ? "certificate_expired" : "certificate_untrusted";
  return { reason, text: `the client's certificate is refused: ${code}` };
}
