import type { Socket } from "node:net";
import { type SecureContext, TLSSocket } from "node:tls";
import type { Clock } from "#base/clock";
import type { PendingHeads } from "../front/index.ts";

/** The first byte of a TLS connection (RFC 8446 section 5.1). */
const RECORD_HANDSHAKE = 0x16;

/** The allowed beginnings of a client's connection. */
export interface TlsGate {
  /** A client that does not begin with TLS is closed; otherwise the first byte decides. */
  readonly isRequired: boolean;
  /** `undefined`: there is no certificate yet, and a client that begins with TLS is closed. */
  readonly context: SecureContext | undefined;
  readonly clock: Clock;
  /** Time limit for the first byte, in milliseconds. */
  readonly timeoutMs: number;
  /** A client that has not sent a byte yet counts among those without a complete head. */
  readonly pending: PendingHeads;
}

/**
 * Terminates TLS on a connection that begins with it (docs/spec/uplink-proxy.md#9.1.2). `serve` gets the socket to speak on, together with
 * the bytes that were already read; it is not called for a client that closes or is disconnected. The socket has a listener for errors.
 */
export function passTlsGate(
  client: Socket,
  { isRequired, context, clock, timeoutMs, pending }: TlsGate,
  serve: (inner: Socket, first: Uint8Array) => void,
): void {
  const waiting = { evict: (): void => void client.destroy() };
  const cancel = clock.after(timeoutMs, waiting.evict);
  const entry = pending.add(waiting);
  const stop = (): void => {
    cancel();
    entry.remove();
  };
  const onClose = (): void => {
    stop();
    client.off("data", onFirst);
  };
  const onEnd = (): void => void client.destroy();
  const onFirst = (chunk: Uint8Array): void => {
    stop();
    client.pause();
    client.off("data", onFirst);
    client.off("end", onEnd);
    client.off("close", onClose);
    if (chunk[0] !== RECORD_HANDSHAKE) {
      if (isRequired) client.destroy();
      else serve(client, chunk);
    } else if (context === undefined) client.destroy();
    else {
      client.unshift(chunk);
      serve(startTls(client, context), new Uint8Array(0));
    }
  };
  client.on("data", onFirst);
  client.once("end", onEnd);
  client.once("close", onClose);
  client.resume();
}

function startTls(client: Socket, secureContext: SecureContext): TLSSocket {
  const inner = new TLSSocket(client, { isServer: true, secureContext });
  inner.on("error", () => inner.destroy());
  // A handshake that fails also ends the TCP connection below it.
  inner.once("close", () => client.destroy());
  client.once("close", () => inner.destroy());
  return inner;
}
