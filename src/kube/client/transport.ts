import { type AbortOptions, sleep, withDeadline } from "#base/async";
import { distrustText } from "#base/authorities";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { HttpProxyError } from "#base/http-proxy";
import { TokenBucket } from "#base/rate-limit";
import { withoutEnd } from "#base/text";
import { type Dispatcher, errors as undiciErrors } from "#base/undici";
import type { RawAnswer } from "./api.ts";
import type { KubeConnection, KubeCredentials } from "./connection.ts";
import { ConnectionPools } from "./connection-pools.ts";
import { KubeConfigError, KubeError } from "./errors.ts";
import { errorFromAnswer, readText } from "./response.ts";
import { withRouteHint } from "./route-hint.ts";
import { type PortState, type ServerAddress, ServerPort } from "./server-port.ts";

const DEFAULT_TIMEOUT_MS = 30_000;
/** The maximum number of tries of one call, the first included. */
const MAX_ATTEMPTS = 5;
const DEFAULT_RETRY_AFTER_MS = 1_000;
/** The maximum random delay that is added to a Retry-After, in milliseconds, so that clients do not retry at the same moment. */
const MAX_SPREAD_MS = 1_000;

/** One HTTP request. */
export interface WireRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Path and query, without the server's prefix. */
  readonly path: string;
  readonly body?: string | undefined;
  readonly contentType?: string | undefined;
  /** Default `application/json`. */
  readonly accept?: string | undefined;
  /** The action, for messages: `get pods default/x`. */
  readonly action: string;
}

/** One answered or failed request, for metrics. */
export interface RequestSample {
  readonly method: string;
  /** The HTTP status, or `<error>` when there was no answer, as in client-go. */
  readonly code: string;
  readonly host: string;
  readonly durationMs: number;
}

/** Options for sending and counting requests. */
export interface TransportOptions {
  /** Default `isthmus`. */
  readonly userAgent?: string | undefined;
  /** The client-side rate limit. Default: no limit; the server limits requests by its priority and fairness. */
  readonly rateLimit?: { readonly qps: number; readonly burst: number } | undefined;
  /** Called for each request on the wire, for `rest_client_requests_total`. */
  readonly onRequest?: ((sample: RequestSample) => void) | undefined;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random?: (() => number) | undefined;
}

/** Sends requests with the connection's credentials, retries the requests that are safe to retry, and translates every failure. */
export class Transport {
  readonly #connection: KubeConnection;
  readonly #options: TransportOptions;
  readonly #clock: Clock;
  readonly #bucket: TokenBucket | undefined;
  readonly #port: ServerPort;
  readonly #random: () => number;
  readonly #pools: ConnectionPools;

  constructor(connection: KubeConnection, options: TransportOptions) {
    this.#connection = connection;
    this.#options = options;
    this.#clock = options.clock;
    this.#random = options.random ?? Math.random;
    const { others, proxyTo, tlsServerName } = connection;
    this.#port = new ServerPort(connection.server, { ...options, others, proxyTo, tlsServerName });
    this.#pools = new ConnectionPools(connection, { port: this.#port, clock: this.#clock });
    this.#bucket =
      options.rateLimit === undefined
        ? undefined
        : new TokenBucket({
            ratePerSecond: options.rateLimit.qps,
            burst: options.rateLimit.burst,
            clock: this.#clock,
          });
  }

  /** The text of a successful answer. Rejects with {@link KubeError}, `KubeConfigError`, or the signal's reason. */
  async send(
    request: WireRequest,
    options: AbortOptions & { readonly timeoutMs?: number | undefined },
  ): Promise<string> {
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    return this.#within(request, timeoutMs, options.signal, (signal, until) =>
      this.#retrying(request, { signal, until }, async () =>
        readText(request.action, await this.#exchange(request, "requests", signal)),
      ),
    );
  }

  /** The answer of any status to one request that is not repeated. Rejects like `send`. */
  async fetch(
    request: WireRequest,
    options: AbortOptions & { readonly timeoutMs?: number | undefined; readonly maxBytes: number },
  ): Promise<RawAnswer> {
    return this.#within(request, options.timeoutMs ?? DEFAULT_TIMEOUT_MS, options.signal, async (signal) => {
      await this.#bucket?.take({ signal });
      const answer = await this.#exchange(request, "requests", signal, "any");
      const text = await readText(request.action, answer, options.maxBytes);
      const { date } = answer.headers;
      const dateMs = typeof date === "string" ? Date.parse(date) : Number.NaN;
      return { status: answer.statusCode, text, dateMs: Number.isNaN(dateMs) ? undefined : dateMs };
    });
  }

  /**
   * The body of a successful answer as it arrives, until `options.signal` aborts. The time limit ends with the headers.
   * The caller consumes or destroys the body.
   */
  async stream(
    request: WireRequest,
    options: { readonly signal: AbortSignal; readonly timeoutMs?: number | undefined },
  ): Promise<Dispatcher.ResponseData["body"]> {
    const timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    return this.#within(request, timeoutMs, options.signal, (signal, until) =>
      this.#retrying(request, { signal, until }, async () => {
        const lifetime = new AbortController();
        const abort = (): void => lifetime.abort(signal.reason);
        signal.addEventListener("abort", abort, { once: true });
        try {
          const answer = await this.#exchange(request, "watches", lifetime.signal);
          options.signal.addEventListener("abort", () => lifetime.abort(options.signal.reason), { once: true });
          return answer.body;
        } finally {
          signal.removeEventListener("abort", abort);
        }
      }),
    );
  }

  /** See {@link ServerPort.learn}. */
  learn(servers: readonly ServerAddress[]): void {
    this.#port.learn(servers);
  }

  /** See `KubeApi.whenOpen`. */
  whenOpen(options: AbortOptions): Promise<PortState> {
    return this.#port.whenOpen(options);
  }

  /** Ends idle connections at once and busy ones when their requests end or are destroyed. */
  async close(): Promise<void> {
    await this.#pools.close(() => this.#port.close());
  }

  async #within<T>(
    request: WireRequest,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    work: (signal: AbortSignal, until: number) => Promise<T>,
  ): Promise<T> {
    signal?.throwIfAborted();
    const until = this.#clock.monotonic() + timeoutMs;
    let inner: AbortSignal | undefined;
    try {
      return await withDeadline(
        timeoutMs,
        (deadline) => {
          inner = deadline;
          return work(deadline, until);
        },
        { signal, clock: this.#clock },
      );
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      if (inner?.aborted === true) {
        throw new KubeError(
          "timeout",
          `Cannot ${request.action}: no complete answer came from ${this.#where} in ${timeoutMs} ms`,
          {
            cause: error,
          },
        );
      }
      throw error;
    }
  }

  /** A request with the answer 429 or 401 was not processed, so any method may be sent again. Reads may be repeated after any failure. */
  async #retrying<T>(
    request: WireRequest,
    { signal, until }: { readonly signal: AbortSignal; readonly until: number },
    attempt: () => Promise<T>,
  ): Promise<T> {
    let refused = false;
    for (let tries = 1; ; tries += 1) {
      await this.#bucket?.take({ signal });
      try {
        return await attempt();
      } catch (error) {
        if (signal.aborted || !(error instanceof KubeError) || tries >= MAX_ATTEMPTS) throw error;
        if (error.code === "unauthorized" && !refused) {
          refused = true;
          this.#connection.expire();
          continue;
        }
        const waitMs = this.#retryDelay(request, error, tries);
        // The deadline comes before the end of the pause: the caller gets the error with its Retry-After.
        if (waitMs === undefined || this.#clock.monotonic() + waitMs >= until) throw error;
        await sleep(waitMs, { signal, clock: this.#clock });
      }
    }
  }

  /** The pause before another try; `undefined`: the failure is final. */
  #retryDelay(request: WireRequest, error: KubeError, tries: number): number | undefined {
    const { retryAfterMs } = error;
    switch (error.code) {
      case "too-many-requests":
        return this.#spread(retryAfterMs ?? DEFAULT_RETRY_AFTER_MS);
      case "server":
        return request.method === "GET" && retryAfterMs !== undefined ? this.#spread(retryAfterMs) : undefined;
      case "unreachable":
        // If the server has closed an idle connection, the first try on it fails at once, and the second makes a new connection.
        return request.method === "GET" && tries <= 2 ? 50 * tries : undefined;
      default:
        return undefined;
    }
  }

  #spread(waitMs: number): number {
    return waitMs + Math.min(waitMs, MAX_SPREAD_MS) * this.#random();
  }

  async #exchange(
    request: WireRequest,
    pool: "requests" | "watches",
    signal: AbortSignal,
    wanted: "success" | "any" = "success",
  ): Promise<Dispatcher.ResponseData> {
    const pools = await this.#pools.connect(signal);
    const { server } = this.#connection;
    const redial = (): void => {
      if (isTimeout(signal.reason)) this.#pools.abandon(pool, pools[pool]);
    };
    signal.addEventListener("abort", redial, { once: true });
    const cancelDoubt = this.#pools.doubt(pools);
    const settled = (): void => {
      cancelDoubt();
      signal.removeEventListener("abort", redial);
    };
    const startedAt = this.#clock.monotonic();
    const sample = (code: string): void =>
      this.#options.onRequest?.({
        method: request.method,
        code,
        host: this.#where,
        durationMs: this.#clock.monotonic() - startedAt,
      });
    let answer: Dispatcher.ResponseData;
    try {
      answer = await pools[pool].request({
        origin: server.origin,
        path: withoutEnd(server.pathname, "/") + request.path,
        method: request.method,
        headers: this.#headers(request, pools.credentials),
        body: request.body ?? null,
        signal,
      });
    } catch (error) {
      sample("<error>");
      settled();
      // The files may have been read while they were replaced, one of them before and one after.
      if (error instanceof KubeConfigError) this.#connection.expire();
      throw signal.aborted ? signal.reason : this.#unreachable(request, error);
    }
    cancelDoubt();
    sample(String(answer.statusCode));
    if (answer.statusCode >= 500 && this.#port.hasOthers) void this.#pools.judge(pools);
    if (wanted === "any") return answer;
    if (answer.statusCode < 200 || answer.statusCode > 299) {
      settled();
      throw await errorFromAnswer(request.action, this.#where, answer, this.#clock.now());
    }
    return answer;
  }

  #headers(request: WireRequest, credentials: KubeCredentials): Record<string, string | string[]> {
    return {
      accept: request.accept ?? "application/json",
      "user-agent": this.#options.userAgent ?? "isthmus",
      ...(request.body === undefined ? {} : { "content-type": request.contentType ?? "application/json" }),
      ...credentials.headers,
    };
  }

  get #where(): string {
    return this.#port.where;
  }

  #unreachable(request: WireRequest, cause: unknown): unknown {
    // Only errors that the network or the peer can cause are expected errors; a wrong argument is a bug.
    if (cause instanceof ExpectedError && !(cause instanceof HttpProxyError)) return cause;
    if (cause instanceof undiciErrors.InvalidArgumentError) return cause;
    const distrust = distrustText(cause, this.#pools.trusted);
    const why =
      distrust === undefined ? `did not answer: ${withRouteHint(describeError(cause))}` : `is not trusted: ${distrust}`;
    return new KubeError("unreachable", `Cannot ${request.action}: ${this.#where} ${why}`, { cause });
  }
}

/** Returns true if a deadline aborted, of the call or of its caller; not a caller that left. */
function isTimeout(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "TimeoutError";
}
