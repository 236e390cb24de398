import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** A request that a {@link FakeService} got. */
export interface GotRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  /** The JSON value of the body; `undefined` without one. */
  readonly body: unknown;
}

/** The answer to a request; `hang` never answers, `cut` ends the connection. */
export type FakeAnswer =
  | { readonly status: number; readonly body?: unknown; readonly headers?: Readonly<Record<string, string>> }
  | "hang"
  | "cut";

/** An HTTP service on loopback whose answers a test gives, one function for all requests. */
export class FakeService implements AsyncDisposable {
  readonly requests: GotRequest[] = [];
  answer: (request: GotRequest) => FakeAnswer | Promise<FakeAnswer>;
  readonly url: URL;
  readonly #server: Server;

  private constructor(server: Server, answer: FakeService["answer"]) {
    this.#server = server;
    this.answer = answer;
    this.url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    server.on("request", (request, response) => void this.#serve(request, response));
  }

  static async open(answer: FakeService["answer"]): Promise<FakeService> {
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new FakeService(server, answer);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sent = await text(request);
    const got: GotRequest = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers: request.headers,
      body: sent === "" ? undefined : JSON.parse(sent),
    };
    this.requests.push(got);
    const answer = await this.answer(got);
    if (answer === "hang") return;
    if (answer === "cut") {
      request.socket.destroy();
      return;
    }
    const { status, body, headers = {} } = answer;
    const isText = typeof body === "string";
    response.writeHead(status, { "content-type": isText ? "text/html" : "application/json", ...headers });
    response.end(body === undefined ? undefined : isText ? body : JSON.stringify(body));
  }
}
