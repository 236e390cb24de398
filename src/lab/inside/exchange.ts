import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { buffer, text } from "node:stream/consumers";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import { waitFor } from "./wait.ts";

/** The answer of a server. */
export interface Answer {
  readonly status: number;
  readonly body: string;
}

/** The answer of a server with headers and the bytes of the body. */
export interface WholeAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

type Options = AbortOptions & { readonly timeoutMs: number };

interface RequestTarget {
  readonly path: string;
  readonly host: string;
  readonly headers?: Readonly<Record<string, string | string[]>>;
}

/** GETs a path over a connection, which it owns from then on. Rejects with `InsideError` and with the signal's reason. */
export async function request(socket: Socket, what: RequestTarget, options: Options): Promise<Answer> {
  const { status, body } = await requestWhole(socket, what, options);
  return { status, body: body.toString() };
}

/** Like {@link request}, but also returns headers and the body's bytes, which are held in memory. */
export function requestWhole(socket: Socket, what: RequestTarget, options: Options): Promise<WholeAnswer> {
  const { path, host, headers } = what;
  return waitFor<WholeAnswer>(socket, `GET ${path} of ${host}`, options, (done, fail) => {
    const sent = httpRequest({
      createConnection: () => socket,
      path,
      headers: { ...headers, host, connection: "close" },
    });
    sent.once("error", (error) => fail(describeError(error)));
    sent.once("response", (response) => {
      const { statusCode: status = 0, headers: said } = response;
      const whole = buffer(response).then((body) => done({ status, headers: said, body }));
      whole.catch((error: unknown) => fail(describeError(error)));
    });
    sent.end();
  }).finally(() => socket.destroy());
}

/** Reads all bytes that the peer sends until its end. Owns the connection from then on. Rejects as {@link request} does. */
export function readAll(socket: Socket, options: Options): Promise<string> {
  return waitFor<string>(socket, "reading", options, (done, fail) => {
    text(socket).then(done, (error: unknown) => fail(describeError(error)));
  }).finally(() => socket.destroy());
}
