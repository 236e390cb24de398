import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock } from "#base/clock";
import { isKubeError, KubeClient, type KubeClientOptions, type KubeErrorCode, staticConnection } from "../index.ts";

/** A request, as a script sees it. */
export interface Seen {
  readonly method: string;
  readonly url: URL;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** A function that answers one request. */
export type Script = (seen: Seen, response: ServerResponse, request: IncomingMessage) => void;

/** An HTTP server whose n-th answer is the n-th script; the last script is repeated. */
export class ScriptedServer implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #server = createServer((request, response) => this.#answer(request, response));
  readonly #scripts: Script[];

  private constructor(scripts: Script[]) {
    this.#scripts = scripts;
  }

  static async start(...scripts: Script[]): Promise<ScriptedServer> {
    const server = new ScriptedServer(scripts);
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  client(options: Partial<KubeClientOptions> = {}): KubeClient {
    return new KubeClient(staticConnection({ server: this.url, token: "t0ken" }), { clock: systemClock, ...options });
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (chunk: string) => {
      body += chunk;
    });
    request.on("end", () => {
      const seen = {
        method: request.method ?? "",
        url: new URL(request.url ?? "", "http://server"),
        headers: request.headers,
        body,
      };
      const script = this.#scripts[Math.min(this.seen.length, this.#scripts.length - 1)];
      this.seen.push(seen);
      script?.(seen, response, request);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }
}

/** Answers with a JSON document. */
export const json =
  (value: unknown, status = 200, headers: Record<string, string> = {}): Script =>
  (_seen, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(value));
  };

/** Answers with a `Status` of failure. */
export const status = (code: number, reason: string, message = "said the server"): Script =>
  json({ kind: "Status", apiVersion: "v1", status: "Failure", code, reason, message }, code);

/** Resets the connection. */
export const reset: Script = (_seen, _response, request) => request.socket.resetAndDestroy();

/** A Pod of the namespace `default`. */
export const pod = (name: string, resourceVersion = "1"): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default", uid: `uid-${name}`, resourceVersion },
});

/** Fails unless the work rejects with a `KubeError` of this code and a matching message. */
export const rejectsWith = (work: Promise<unknown>, code: KubeErrorCode, pattern: RegExp): Promise<void> =>
  assert.rejects(work, (error) => {
    assert.ok(isKubeError(error, code), `expected ${code}, got ${error}`);
    assert.match(error.message, pattern);
    return true;
  });
