import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { connect } from "node:tls";
import { type AbortOptions, withDeadline } from "#base/async";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import {
  type AdmissionAnswer,
  type AdmissionRequest,
  formatAdmissionReview,
  parseAdmissionReview,
  WebhookError,
} from "./admission.ts";
import { CertificateFiles, type KeyPair } from "./certificates.ts";

/** The maximum size of a review, bytes: two objects of etcd's maximum size, with JSON's overhead. */
export const MAX_REVIEW_BYTES = 8 * 1024 * 1024;
/** The maximum number of connections; each API server keeps a few open. */
export const MAX_WEBHOOK_CONNECTIONS = 256;
/** The longest that an API server waits for a webhook. */
const HANDLER_TIMEOUT_MS = 30_000;
const HANDSHAKE_TIMEOUT_MS = 10_000;

/** Decides about one request. An error is logged and answered with 500, to which the server applies its failurePolicy. */
export type AdmissionHandler = (
  request: AdmissionRequest,
  options: { readonly signal: AbortSignal },
) => AdmissionAnswer | Promise<AdmissionAnswer>;

/** Settings of {@link WebhookServer.listen}. */
export interface WebhookServerOptions {
  readonly host?: string;
  /** The port to listen on; 0: any free port. */
  readonly port: number;
  /** The folder of `tls.crt` and `tls.key`; the files may be created later. */
  readonly certDir: string;
  /** The handlers by path, such as `/validate-coil-cybozu-com-v2-addresspool`. */
  readonly handlers: Readonly<Record<string, AdmissionHandler>>;
  readonly log: Logger;
}

/** An HTTPS server for admission webhooks. Dispose it to stop it. */
export class WebhookServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #options: WebhookServerOptions;
  readonly #certificates: CertificateFiles;
  readonly #stop = new AbortController();
  #served: KeyPair | undefined;

  private constructor(options: WebhookServerOptions) {
    this.#options = options;
    this.#certificates = new CertificateFiles(options.certDir, (event) => {
      if (event.loaded) options.log.info("webhook certificate loaded", { certDir: options.certDir });
      else options.log.warn("webhook certificate not usable", { certDir: options.certDir, error: event.why });
    });
    this.#server = createServer({ handshakeTimeout: HANDSHAKE_TIMEOUT_MS }, (request, response) => {
      void this.#serve(request, response);
    });
    this.#server.maxConnections = MAX_WEBHOOK_CONNECTIONS;
    this.#server.requestTimeout = HANDLER_TIMEOUT_MS;
    // This listener runs before the TLS server's own one, which uses the certificate that is set when a connection arrives.
    this.#server.prependListener("connection", (socket: Socket) => this.#refreshCertificate(socket));
    this.#server.on("tlsClientError", (error) => options.log.debug("webhook handshake failed", { error }));
  }

  /** Starts to listen; certificates may be missing. Rejects with {@link WebhookError} `listen-failed`. */
  static async listen(options: WebhookServerOptions): Promise<WebhookServer> {
    const server = new WebhookServer(options);
    await server.#listen();
    return server;
  }

  /** The port in use. */
  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /**
   * Resolves when a real TLS handshake with this server's own port works. Rejects with {@link WebhookError} `handshake-failed`
   * (no certificate, port dead), or with the signal's reason.
   */
  async checkHealth(options: AbortOptions & { readonly timeoutMs?: number } = {}): Promise<void> {
    const { signal, timeoutMs = 5_000 } = options;
    try {
      await withDeadline(timeoutMs, (deadline) => handshake(this.#ownHost(), this.port, deadline), { signal });
    } catch (cause) {
      if (signal?.aborted === true) throw signal.reason;
      throw new WebhookError(
        "handshake-failed",
        `TLS handshake with the webhook's own port ${this.port} failed: ${describeError(cause)}; are tls.crt and tls.key in ${this.#options.certDir}?`,
        { cause },
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new DOMException("the webhook server stops", "AbortError"));
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  #ownHost(): string {
    const { host } = this.#options;
    return host === undefined || host === "" || host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  }

  async #listen(): Promise<void> {
    const { host, port } = this.#options;
    await new Promise<void>((resolve, reject) => {
      const onError = (cause: Error): void => {
        const at = `${host ?? ""}:${port}`;
        reject(
          new WebhookError("listen-failed", `Cannot listen for webhooks on ${at}: ${describeError(cause)}`, { cause }),
        );
      };
      this.#server.once("error", onError);
      this.#server.listen(port, host, () => {
        this.#server.off("error", onError);
        resolve();
      });
    });
  }

  #refreshCertificate(socket: Socket): void {
    // An API server may close a waiting connection; that needs no action.
    socket.on("error", (error) => this.#options.log.debug("webhook connection broke", { error }));
    const pair = this.#certificates.current();
    if (pair === undefined || pair === this.#served) return;
    this.#served = pair;
    this.#server.setSecureContext({ cert: pair.cert, key: pair.key });
  }

  /** Never rejects: every failure has become an answer. */
  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? "").split("?", 1)[0] ?? "";
    const handler = Object.hasOwn(this.#options.handlers, path) ? this.#options.handlers[path] : undefined;
    response.on("error", (error) => this.#options.log.debug("webhook answer not delivered", { path, error }));
    if (handler === undefined) return answer(response, 404, `no webhook at ${path}\n`);
    if (request.method !== "POST") return answer(response, 405, "a webhook takes POST\n");
    try {
      const body = await readBody(request);
      if (body === undefined) return answer(response, 413, `a review may have ${MAX_REVIEW_BYTES} bytes\n`);
      const review = parseAdmissionReview(body);
      const decision = await withDeadline(HANDLER_TIMEOUT_MS, async (signal) => handler(review.request, { signal }), {
        signal: this.#stop.signal,
      });
      answer(response, 200, formatAdmissionReview(review, decision), "application/json");
    } catch (error) {
      if (error instanceof WebhookError) return answer(response, 400, `${error.message}\n`);
      // The peer of this call is an API server that must get an answer, whatever went wrong with the handler.
      this.#options.log.error("webhook failed", { path, error });
      answer(response, 500, `the webhook failed: ${describeError(error)}\n`);
    }
  }
}

function answer(response: ServerResponse, status: number, body: string, type = "text/plain"): void {
  if (response.destroyed) return;
  // On a kept connection, the unread rest of the body would be read as the next request.
  if (status === 413) response.setHeader("connection", "close");
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(body) });
  response.end(body);
}

/** The text of a request; `undefined` when it is too long. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > MAX_REVIEW_BYTES) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function handshake(host: string, port: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    // The API server decides whether it trusts the certificate; here it only has to exist.
    const socket = connect({ host, port, rejectUnauthorized: false });
    const onAbort = (): void => {
      socket.destroy();
      reject(signal.reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    const end = (settle: () => void): void => {
      signal.removeEventListener("abort", onAbort);
      socket.destroy();
      settle();
    };
    socket.once("secureConnect", () => end(resolve));
    socket.on("error", (error) => end(() => reject(error)));
    socket.once("close", () => end(() => reject(new Error("the connection was closed"))));
  });
}
