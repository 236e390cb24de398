/** A small client for the server's own tests. */
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import type { JsonObject } from "./object/json.ts";
import type { ApiServerOptions } from "./options.ts";
import { type ApiServer, startApiServer } from "./server.ts";

/** A response with its JSON body. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: JsonObject;
}

/** A server on loopback with a client. */
export class TestServer implements AsyncDisposable {
  readonly server: ApiServer;
  readonly url: string;

  private constructor(server: ApiServer) {
    this.server = server;
    this.url = server.urls[0] ?? "";
  }

  static async start(options: Partial<ApiServerOptions> = {}): Promise<TestServer> {
    return new TestServer(
      await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock, ...options }),
    );
  }

  /** Sends a request; an object body is sent as JSON. */
  async ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    const init = body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) };
    const response = await fetch(this.url + path, {
      method,
      headers: { "content-type": "application/json", ...headers },
      ...init,
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: text.startsWith("{") ? (JSON.parse(text) as JsonObject) : { text },
    };
  }

  patch(
    path: string,
    type: "json-patch+json" | "merge-patch+json" | "strategic-merge-patch+json" | "apply-patch+yaml",
    body: unknown,
  ): Promise<Answer> {
    return this.ask("PATCH", path, body, { "content-type": `application/${type}` });
  }

  /** Opens a watch. */
  async watch(path: string): Promise<TestWatch> {
    const controller = new AbortController();
    const response = await fetch(`${this.url}${path}${path.includes("?") ? "&" : "?"}watch=1`, {
      signal: controller.signal,
    });
    if (response.body === null) throw new Error(`the watch of ${path} has no body`);
    return new TestWatch(response.status, response.body, controller);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.stop();
  }
}

/** A stream of events, read one at a time. */
export class TestWatch implements AsyncDisposable {
  readonly status: number;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #controller: AbortController;
  readonly #decoder = new TextDecoder();
  #text = "";

  constructor(status: number, body: ReadableStream<Uint8Array>, controller: AbortController) {
    this.status = status;
    this.#reader = body.getReader();
    this.#controller = controller;
  }

  /** The next event; undefined at the end of the stream. Rejects when the connection is cut. */
  async next(): Promise<{ type: string; object: JsonObject } | undefined> {
    for (;;) {
      const end = this.#text.indexOf("\n");
      if (end >= 0) {
        const line = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 1);
        return JSON.parse(line) as { type: string; object: JsonObject };
      }
      const { done, value } = await this.#reader.read();
      if (done) return undefined;
      this.#text += this.#decoder.decode(value, { stream: true });
    }
  }

  /** Events as `TYPE name`. */
  async take(count: number): Promise<string[]> {
    const taken: string[] = [];
    for (let index = 0; index < count; index += 1) {
      const event = await this.next();
      const metadata = event?.object["metadata"] as JsonObject | undefined;
      taken.push(`${event?.type} ${String(metadata?.["name"] ?? event?.object["code"] ?? "")}`.trim());
    }
    return taken;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort();
    await this.#reader.closed.then(
      () => undefined,
      // The test ends the stream by aborting.
      () => undefined,
    );
  }
}

/** A ConfigMap of the namespace default. */
export function configMap(
  name: string,
  data: Record<string, string> = {},
  metadata: JsonObject = {},
): { apiVersion: string; kind: string; metadata: JsonObject & { name: string }; data: Record<string, string> } {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, ...metadata }, data };
}

/** A pod of the namespace default; on a node if its name is given. */
export function pod(name: string, nodeName?: string): JsonObject {
  const spec = {
    containers: [{ name: "c", image: "registry.invalid/c:1" }],
    ...(nodeName === undefined ? {} : { nodeName }),
  };
  return { apiVersion: "v1", kind: "Pod", metadata: { name }, spec };
}

export const MAPS = "/api/v1/namespaces/default/configmaps";
export const PODS = "/api/v1/namespaces/default/pods";
