import { request as httpRequest } from "node:http";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import { waitFor } from "./wait.ts";

/** What a server said. */
export interface Answer {
  readonly status: number;
  readonly body: string;
}

type Options = AbortOptions & { readonly timeoutMs: number };

/** GETs a path over a connection, which it takes over. Rejects with `InsideError` and with the signal's reason. */
export function request(
  socket: Socket,
  what: { readonly path: string; readonly host: string; readonly headers?: Readonly<Record<string, string>> },
  options: Options,
): Promise<Answer> {
  const { path, host, headers } = what;
  return waitFor<Answer>(socket, `GET ${path} of ${host}`, options, (done, fail) => {
    const sent = httpRequest({
      createConnection: () => socket,
      path,
      headers: { ...headers, host, connection: "close" },
    });
    sent.once("error", (error) => fail(describeError(error)));
    sent.once("response", (response) => {
      const whole = text(response).then((body) => done({ status: response.statusCode ?? 0, body }));
      whole.catch((error: unknown) => fail(describeError(error)));
    });
    sent.end();
  }).finally(() => socket.destroy());
}

/** Everything that the other side says until it ends. Takes the connection over. Rejects as {@link request} does. */
export function readAll(socket: Socket, options: Options): Promise<string> {
  return waitFor<string>(socket, "reading", options, (done, fail) => {
    text(socket).then(done, (error: unknown) => fail(describeError(error)));
  }).finally(() => socket.destroy());
}
