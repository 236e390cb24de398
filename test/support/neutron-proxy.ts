/**
 * A proxy in front of an HTTP service such as Neutron: it counts requests, holds them back, and loses requests or answers.
 *
 * Owns: passing on whole requests and answers. Does not know: what they mean.
 *
 * ```ts
 * await using proxy = await HttpProxy.open(neutron.url);
 * proxy.rule = ({ method }) => (method === "POST" ? "lose-answer" : "pass");
 * ```
 */
import { once } from "node:events";
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { sleep } from "#base/async";

/** A request as it came. */
export interface SeenRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  /** The JSON of its body, or undefined. */
  readonly body: unknown;
}

/**
 * The treatment of a request. `lose-request`: the connection ends, and the service never sees it. `lose-answer`: the service does it, and the
 * connection ends in place of the answer. `lose-client`: the connection ends, and the service gets the request a second later. A promise holds the
 * request back until it resolves.
 */
export type ProxyVerdict = "pass" | "lose-request" | "lose-answer" | "lose-client";
/** When the service gets a request whose client was lost, in milliseconds. */
const LATE_MS = 1000;

/** Disposing ends all connections. */
export class HttpProxy implements AsyncDisposable {
  readonly requests: SeenRequest[] = [];
  rule: (request: SeenRequest) => ProxyVerdict | Promise<ProxyVerdict> = () => "pass";
  /** Called when the service has answered a request, before the client gets the answer. */
  onAnswer: (request: SeenRequest, status: number) => void | Promise<void> = () => undefined;
  readonly url: URL;
  readonly #server: Server;
  readonly #behind: URL;

  private constructor(server: Server, behind: URL) {
    this.#server = server;
    this.#behind = behind;
    this.url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    server.on("request", (request, response) => void this.#serve(request, response));
  }

  static async open(behind: URL): Promise<HttpProxy> {
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new HttpProxy(server, behind);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const body = await buffer(request);
      const seen: SeenRequest = {
        method: request.method ?? "",
        path: request.url ?? "",
        body: body.length === 0 ? undefined : JSON.parse(body.toString("utf8")),
      };
      this.requests.push(seen);
      const verdict = await this.rule(seen);
      if (verdict === "lose-request") {
        request.socket.destroy();
        return;
      }
      if (verdict === "lose-client") {
        request.socket.destroy();
        await sleep(LATE_MS);
      }
      const answer = await this.#ask(request, body);
      await this.onAnswer(seen, answer.status);
      if (verdict === "lose-answer") {
        request.socket.destroy();
        return;
      }
      response.writeHead(answer.status, answer.headers);
      response.end(answer.body);
    } catch {
      // A client that has gone, or a service that is away: the client sees a connection that ends.
      request.socket.destroy();
    }
  }

  async #ask(
    { method, url, headers }: IncomingMessage,
    body: Buffer,
  ): Promise<{ readonly status: number; readonly headers: IncomingMessage["headers"]; readonly body: Buffer }> {
    const sent = httpRequest(new URL(url ?? "/", this.#behind), {
      method: method ?? "GET",
      headers: { ...headers, host: this.#behind.host },
      agent: false,
    });
    sent.end(body);
    const [answer] = (await once(sent, "response")) as [IncomingMessage];
    return { status: answer.statusCode ?? 500, headers: answer.headers, body: await buffer(answer) };
  }
}
