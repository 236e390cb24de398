import { Agent, type IncomingHttpHeaders, request } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";

/** Answer to a probe. */
export interface Probed {
  readonly code: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Request of a probe. Default: GET `/healthz` at 127.0.0.1, on a connection of its own. */
export interface ProbeOptions {
  readonly host?: string;
  readonly path?: string;
  readonly method?: string;
  readonly agent?: Agent;
}

/** Sends one probe, as a load balancer does. Rejects if there is no answer. */
export function probe(port: number, options: ProbeOptions = {}): Promise<Probed> {
  const { host = "127.0.0.1", path = "/healthz", method = "GET", agent } = options;
  const { promise, resolve, reject } = Promise.withResolvers<Probed>();
  const sent = request({ host, port, path, method, agent: agent ?? new Agent() }, (response) => {
    let body = "";
    response.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    response.once("end", () => resolve({ code: response.statusCode ?? 0, headers: response.headers, body }));
    response.once("error", reject);
  });
  sent.once("error", reject);
  sent.end();
  return promise;
}

/** Opens a connection; later errors on it are ignored. */
export async function connected(port: number, host = "127.0.0.1"): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const socket = connect({ port, host }, () => resolve(socket));
  socket.on("error", reject);
  return promise;
}

/** Polls `read` until it returns a value. Fails after five seconds. */
export async function eventually<T>(read: () => T | undefined): Promise<T> {
  const until = performance.now() + 5000;
  for (;;) {
    const value = read();
    if (value !== undefined) return value;
    if (performance.now() > until) throw new Error(`not within 5 s: ${read}`);
    await setImmediate();
  }
}

/** Runs a part until it is disposed. Disposing aborts its signal, waits, and throws its error. */
export function running(part: { run(options: { readonly signal: AbortSignal }): Promise<void> }): AsyncDisposable & {
  readonly ended: Promise<void>;
} {
  const controller = new AbortController();
  const ended = part.run({ signal: controller.signal });
  // `ended` reports a failure later; this handler prevents an unhandled rejection before that.
  ended.catch(() => undefined);
  return {
    ended,
    async [Symbol.asyncDispose]() {
      controller.abort();
      await ended;
    },
  };
}

/** No answer may fail: the error ends the test as an unhandled rejection. */
export function onBug(error: unknown): never {
  throw error;
}
