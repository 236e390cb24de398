import { X509Certificate } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { connect } from "node:tls";
import { type AbortOptions, untilAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { Places, RequestTurns } from "#base/places";
import { RateLimitedLog } from "#base/rate-limit";
import {
  type AdmissionAnswer,
  type AdmissionRequest,
  formatAdmissionReview,
  parseAdmissionReview,
  WebhookError,
} from "./admission.ts";
import { type Callers, callerAuthority, callerFault } from "./callers.ts";
import { type CertificateEvent, CertificateFiles, type KeyPair } from "./certificates.ts";
import type { FollowedFiles } from "./followed-files.ts";

/** The maximum size of a review, in bytes: two objects of etcd's maximum size, with JSON's overhead. */
export const MAX_REVIEW_BYTES = 8 * 1024 * 1024;
/**
 * The maximum number of connections; each API server keeps a few open. Whoever reaches the port may open some: of the address that has the most one gives way,
 * first one without a review.
 */
export const MAX_WEBHOOK_CONNECTIONS = 256;
/**
 * The maximum number of reviews from their first byte to their answer; further reviews get 503. A connection has one at a time: one that sends the next
 * request before the answer ends.
 */
export const MAX_REVIEWS = 256;
/**
 * The limit on bytes of long reviews from their first byte to their answer; further long reviews get 503, and the API server tries again or
 * applies its failurePolicy. The first {@link SHORT_BYTES} of a review do not count, so long reviews that never end do not block short reviews.
 */
export const MAX_BYTES_UNDER_WAY = 64 * 1024 * 1024;
/** The size up to which a review is short, in bytes: most have some KiB. Each review can hold this amount, which is 16 MiB for all reviews. */
const SHORT_BYTES = 64 * 1024;
/** The longest time that an API server waits for a webhook, in milliseconds. */
const HANDLER_TIMEOUT_MS = 30_000;
/** Connections that wait to be accepted: the kernel's own limit (net.core.somaxconn). A client beyond it tries again only after a second. */
const BACKLOG = 4096;
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** The longest time that the head of a request may take, in milliseconds. */
const HEAD_TIMEOUT_MS = 10_000;
/**
 * The time for which an idle connection is kept, in milliseconds. API servers keep theirs for 90 s, and do not repeat a review whose bytes were sent
 * when the server closes the connection: the object would be refused.
 */
const IDLE_TIMEOUT_MS = 120_000;
/** The time that reviews under way have when the server ends, in milliseconds. */
const END_GRACE_MS = 2_000;
/** The interval of checks for requests that take too long, in milliseconds. */
const SLOW_CHECK_MS = 2_000;

/** Decides about one request. An error is logged and answered with 500, to which the server applies its failurePolicy. */
export type AdmissionHandler = (
  request: AdmissionRequest,
  options: {
    readonly signal: AbortSignal;
    /** True if the caller has proved that it is an API server. Otherwise it may be anybody, and the answer should say no more than the review does. */
    readonly isProven: boolean;
  },
) => AdmissionAnswer | Promise<AdmissionAnswer>;

/** Settings of {@link WebhookServer.listen}. */
export interface WebhookServerOptions {
  readonly host?: string;
  /** The port to listen on; 0: any free port. */
  readonly port: number;
  /** The folder of `tls.crt` and `tls.key`; the files may be created later. */
  readonly certDir: string;
  /** True if {@link WebhookServer.use} gives a pair: then files that are absent or cannot be used are no fault. Default: false. */
  readonly isPairGiven?: boolean;
  /** The callers that may send reviews. `undefined`: everybody who reaches the port. */
  readonly callers?: Callers;
  /** The handlers by path, such as `/validate-coil-cybozu-com-v2-addresspool`. */
  readonly handlers: Readonly<Record<string, AdmissionHandler>>;
  /** Called for each answer to a known path. `code` is the HTTP status. */
  readonly onAnswer?: (sample: { readonly path: string; readonly code: number; readonly durationMs: number }) => void;
  /** Called when a certificate was loaded, and once for each state of the files that cannot be used. */
  readonly onCertificate?: (event: CertificateEvent) => void;
  readonly log: Logger;
  /** The clock for the expiry of certificates and the duration of answers. */
  readonly clock: Clock;
}

/** An HTTPS server for admission webhooks. Dispose it to stop it: reviews that are under way are answered, for 2 s at most. */
export class WebhookServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #options: WebhookServerOptions;
  readonly #certificates: CertificateFiles;
  readonly #authority: FollowedFiles<string> | undefined;
  readonly #stop = new AbortController();
  readonly #refusals: RateLimitedLog;
  readonly #places = new Places(MAX_WEBHOOK_CONNECTIONS);
  /** The connections beneath TLS, by the client's address and port. */
  readonly #arrivals = new Map<string, Socket>();
  /** Answers that are not sent yet, or not to their end. */
  readonly #answers = new Set<Promise<void>>();
  #isEnding = false;
  #served: KeyPair | undefined;
  #servedCertificate: X509Certificate | undefined;
  #believed: string | undefined;
  #reviewsUnderWay = 0;
  #bytesUnderWay = 0;

  private constructor(options: WebhookServerOptions) {
    this.#options = options;
    const onCertificate = (event: CertificateEvent): void => {
      if (event.loaded) {
        options.log.info("webhook certificate loaded", { validUntil: new Date(event.notAfter).toISOString() });
      } else
        options.log.warn("the webhook's certificate cannot be used", { certDir: options.certDir, error: event.why });
      options.onCertificate?.(event);
    };
    this.#certificates = new CertificateFiles(options.certDir, onCertificate, {
      isOptional: options.isPairGiven === true,
    });
    const { callers, log } = options;
    this.#refusals = new RateLimitedLog(options);
    if (callers !== undefined) {
      this.#authority = callerAuthority(callers.caFile, (error) =>
        log.warn("the authority of the webhook's callers cannot be used", { error }),
      );
    }
    const bounds = { handshakeTimeout: HANDSHAKE_TIMEOUT_MS, connectionsCheckingInterval: SLOW_CHECK_MS };
    // Who has no certificate, or another one, is told so in an answer: a handshake that fails says little to an API server's log.
    const asks = callers === undefined ? {} : { requestCert: true, rejectUnauthorized: false };
    const turns = new RequestTurns();
    this.#server = createServer({ ...bounds, ...asks }, (request, response) => {
      if (!turns.take(request, response)) return;
      const socket = this.#arrivals.get(clientOf(request.socket));
      if (socket !== undefined) {
        this.#places.begin(socket);
        response.once("close", () => this.#places.end(socket));
      }
      const sent = new Promise<void>((resolve) => response.once("close", resolve));
      this.#answers.add(sent);
      void sent.then(() => this.#answers.delete(sent));
      void this.#serve(request, response);
    });
    this.#server.headersTimeout = HEAD_TIMEOUT_MS;
    this.#server.requestTimeout = HANDLER_TIMEOUT_MS;
    this.#server.keepAliveTimeout = IDLE_TIMEOUT_MS;
    // This listener runs before the TLS server's own one, which uses the certificate that is set when a connection arrives.
    this.#server.prependListener("connection", (socket: Socket) => {
      this.#refreshCertificate(socket);
      this.#admit(socket);
    });
    this.#server.on("tlsClientError", (error) =>
      options.log.debug("the TLS handshake of a webhook client failed", { error }),
    );
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
   * Serves this pair from now on, and does not read the files any more: for a pair that the program itself keeps up to date. Returns false,
   * and changes nothing, if the pair cannot be used.
   */
  use(pair: KeyPair): boolean {
    return this.#certificates.give(pair);
  }

  /**
   * Resolves when a real TLS handshake with this server's own port works, and shows a certificate that has not expired. Rejects with
   * {@link WebhookError} `handshake-failed` (no certificate, port dead) or `expired`, or with the signal's reason. A handshake that failed while
   * another pair came says nothing of that pair: it is made again.
   */
  async checkHealth(options: AbortOptions & { readonly timeoutMs?: number } = {}): Promise<void> {
    const { signal, timeoutMs = 5_000 } = options;
    const pairBefore = this.#certificates.current();
    let notAfter: number;
    try {
      notAfter = await withDeadline(timeoutMs, (deadline) => handshake(this.#ownHost(), this.port, deadline), {
        signal,
      });
    } catch (cause) {
      if (signal?.aborted === true) throw signal.reason;
      if (this.#certificates.current() !== pairBefore) return await this.checkHealth(options);
      throw new WebhookError(
        "handshake-failed",
        `TLS handshake with the webhook's own port ${this.port} failed: ${describeError(cause)}; are tls.crt and tls.key in ${this.#options.certDir}?`,
        { cause },
      );
    }
    if (notAfter > this.#options.clock.now()) return;
    throw new WebhookError(
      "expired",
      `the webhook's certificate expired at ${new Date(notAfter).toISOString()}, so API servers refuse it: renew tls.crt and tls.key in ${this.#options.certDir}`,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isEnding = true;
    // An API server does not repeat a review that gets no answer: the object would be refused.
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    await withDeadline(END_GRACE_MS, (signal) => this.#answered(signal), { clock: this.#options.clock });
    this.#stop.abort(new DOMException("the webhook server stops", "AbortError"));
    for (const socket of this.#places) socket.destroy();
    this.#server.closeAllConnections();
    await closed;
  }

  /** Resolves when no answer is due any more, or when the signal aborts. */
  async #answered(signal: AbortSignal): Promise<void> {
    const ended = untilAborted(signal);
    while (this.#answers.size > 0 && !signal.aborted) await Promise.race([Promise.all(this.#answers), ended]);
  }

  #admit(socket: Socket): void {
    const client = clientOf(socket);
    this.#arrivals.set(client, socket);
    socket.once("close", () => {
      this.#places.leave(socket);
      if (this.#arrivals.get(client) === socket) this.#arrivals.delete(client);
    });
    this.#places.take(socket)?.destroy();
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
      this.#server.listen({ port, host, backlog: BACKLOG }, () => {
        this.#server.off("error", onError);
        resolve();
      });
    });
  }

  #refreshCertificate(socket: Socket): void {
    // An API server may close a waiting connection; that needs no action.
    socket.on("error", (error) => this.#options.log.debug("a webhook client's connection failed", { error }));
    const pair = this.#certificates.current();
    const ca = this.#authority?.current();
    if (pair === undefined || (pair === this.#served && ca === this.#believed)) return;
    this.#served = pair;
    this.#servedCertificate = new X509Certificate(pair.cert);
    this.#believed = ca;
    this.#server.setSecureContext({ cert: pair.cert, key: pair.key, ...(ca === undefined ? {} : { ca }) });
  }

  /** Never rejects: every failure has become an answer. */
  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { handlers, log, clock, onAnswer } = this.#options;
    const path = (request.url ?? "").split("?", 1)[0] ?? "";
    const handler = Object.hasOwn(handlers, path) ? handlers[path] : undefined;
    response.on("error", (error) => log.debug("the answer to a webhook call was not delivered", { path, error }));
    if (handler === undefined) return send(response, { code: 404, body: `no webhook at ${path}\n` });
    const began = clock.monotonic();
    const answer = this.#refuse(request, path) ?? (await this.#answerTo(request, path, handler));
    onAnswer?.({ path, code: answer.code, durationMs: clock.monotonic() - began });
    if (this.#isEnding && !response.headersSent) response.setHeader("connection", "close");
    send(response, answer);
  }

  /** The answer to a caller that may not send reviews. Nothing of its request is read. */
  #refuse(request: IncomingMessage, path: string): Answer | undefined {
    const { callers } = this.#options;
    if (callers === undefined) return undefined;
    const fault = callerFault(request, callers, {
      isKnown: this.#believed !== undefined,
      served: this.#servedCertificate,
    });
    if (fault !== undefined) {
      const why = fault.body.trimEnd();
      this.#refusals.warn("a review was refused", { path, from: request.socket.remoteAddress, why });
    }
    return fault;
  }

  async #answerTo(request: IncomingMessage, path: string, handler: AdmissionHandler): Promise<Answer> {
    if (request.method !== "POST") return { code: 405, body: "a webhook accepts only POST\n" };
    if (this.#reviewsUnderWay >= MAX_REVIEWS)
      return { code: 503, body: "the webhook handles too many reviews at the moment: try again\n" };
    const held = { longBytes: 0 };
    this.#reviewsUnderWay += 1;
    try {
      const body = await this.#read(request, held);
      if (body === "too-long") return { code: 413, body: `a review may have at most ${MAX_REVIEW_BYTES} bytes\n` };
      if (body === "too-many")
        return { code: 503, body: "the webhook handles too many long reviews at the moment: try again\n" };
      const review = parseAdmissionReview(body.text);
      const decision = await withDeadline(
        HANDLER_TIMEOUT_MS,
        async (signal) => handler(review.request, { signal, isProven: this.#options.callers !== undefined }),
        {
          signal: this.#stop.signal,
        },
      );
      return { code: 200, body: formatAdmissionReview(review, decision), type: "application/json" };
    } catch (error) {
      if (error instanceof WebhookError) return { code: 400, body: `${error.message}\n` };
      // The peer of this call is an API server that must get an answer, even if the handler fails. A peer that has closed the connection
      // gets none.
      if (request.destroyed && !request.complete)
        this.#options.log.debug("the client closed the connection during a webhook call", { path, error });
      else this.#options.log.error("webhook failed", { path, error });
      return { code: 500, body: `the webhook failed: ${describeError(error)}\n` };
    } finally {
      this.#reviewsUnderWay -= 1;
      this.#bytesUnderWay -= held.longBytes;
    }
  }

  /**
   * The text of a request, within the limits for one review and for all reviews. `held` gets the number of its bytes that count as under way
   * until its answer.
   */
  async #read(
    request: IncomingMessage,
    held: { longBytes: number },
  ): Promise<{ readonly text: string } | "too-long" | "too-many"> {
    const chunks: Buffer[] = [];
    let length = 0;
    for await (const chunk of request as AsyncIterable<Buffer>) {
      length += chunk.length;
      const more = Math.max(0, length - SHORT_BYTES) - held.longBytes;
      held.longBytes += more;
      this.#bytesUnderWay += more;
      if (length > MAX_REVIEW_BYTES) return "too-long";
      if (this.#bytesUnderWay > MAX_BYTES_UNDER_WAY) return "too-many";
      chunks.push(chunk);
    }
    return { text: Buffer.concat(chunks).toString("utf8") };
  }
}

interface Answer {
  readonly code: number;
  readonly body: string;
  readonly type?: string;
}

function send(response: ServerResponse, { code, body, type = "text/plain" }: Answer): void {
  if (response.destroyed) return;
  // On a kept connection, the unread rest of the body would be read as the next request.
  if ([403, 413, 421, 503].includes(code)) response.setHeader("connection", "close");
  response.writeHead(code, { "content-type": type, "content-length": Buffer.byteLength(body) });
  response.end(body);
}

/** The client of a connection, by its address and port; both are of one open connection only. */
function clientOf({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">): string {
  return `${remoteAddress} ${remotePort}`;
}

/** Resolves with the end of the certificate that the server shows, milliseconds since the epoch. */
function handshake(host: string, port: number, signal: AbortSignal): Promise<number> {
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
    socket.once("secureConnect", () => {
      const notAfter = Date.parse(socket.getPeerX509Certificate()?.validTo ?? "");
      end(() => resolve(notAfter));
    });
    socket.on("error", (error) => end(() => reject(error)));
    socket.once("close", () => end(() => reject(new Error("the connection was closed"))));
  });
}
