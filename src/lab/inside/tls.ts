import type { Socket } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import { waitFor } from "./wait.ts";

/**
 * TLS over a connection, which it owns from then on. The certificate must be signed by `ca` and name `host`, a name or an
 * address, unless `isUnverified`. Rejects with `InsideError` and with the signal's reason.
 */
export function secure(
  socket: Socket,
  trust: {
    readonly host: string;
    readonly ca: string | undefined;
    readonly cert?: string | undefined;
    readonly key?: string | undefined;
    /** True: the server's certificate is not verified, as a kubeconfig can request. Default false. */
    readonly isUnverified?: boolean;
  },
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<TLSSocket> {
  return waitFor<TLSSocket>(socket, `TLS with ${trust.host}`, options, (done, fail) => {
    const { isUnverified = false, ...identity } = trust;
    const tls = connect({ ...identity, socket, rejectUnauthorized: !isUnverified });
    tls.once("secureConnect", () => done(tls));
    // The listener stays after the handshake: the reader sees the end of the stream.
    tls.on("error", (error) => fail(describeError(error)));
  });
}
