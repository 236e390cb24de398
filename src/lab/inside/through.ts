import { request as httpRequest } from "node:http";
import { connect, type Socket } from "node:net";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import { formatHostPort } from "#wire/http-connect";
import type { Destination } from "./connect.ts";
import { waitFor } from "./wait.ts";

/**
 * A connection through a proxy that accepts HTTP CONNECT on a UNIX socket, in any namespace. Rejects with
 * `InsideError` and with the signal's reason.
 */
export function connectThrough(
  proxy: string,
  { address, port }: Destination,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<Socket> {
  const target = formatHostPort({ host: address.toString(), port });
  return requestConnect(connect({ path: proxy, allowHalfOpen: true }), target, options);
}

/**
 * Sends CONNECT for `HOST:PORT` to the proxy at the other end of a connection. Returns the connection, which is the tunnel then.
 * Rejects with `InsideError`, whose message has the proxy's answer, and with the signal's reason.
 */
export function requestConnect(
  socket: Socket,
  target: string,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<Socket> {
  return waitFor<Socket>(socket, `CONNECT ${target}`, options, (done, fail) => {
    const sent = httpRequest({
      createConnection: () => socket,
      method: "CONNECT",
      path: target,
      headers: { host: target },
    });
    sent.once("error", (error) => fail(describeError(error)));
    sent.once("connect", (response, _socket, rest: Buffer) => {
      if (response.statusCode !== 200)
        return fail(`the proxy answered ${response.statusCode} ${response.statusMessage}`);
      if (rest.length > 0) socket.unshift(rest);
      done(socket);
    });
    sent.end();
  });
}
