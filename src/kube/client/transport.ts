import { type AbortOptions, sleep, withDeadline } from "#base/async";
import { distrustText, machineTrust, type Trust, trustIn } from "#base/authorities";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { HttpProxyError } from "#base/http-proxy";
import { TokenBucket } from "#base/rate-limit";
import { withoutEnd } from "#base/text";
import { Agent, type Dispatcher, errors as undiciErrors } from "#base/undici";
import type { RawAnswer } from "./api.ts";
import type { KubeConnection, KubeCredentials } from "./connection.ts";
import { KubeConfigError, KubeError } from "./errors.ts";
import { errorFromAnswer, readText } from "./response.ts";
import { withRouteHint } from "./route-hint.ts";
import { type PortState, type ServerAddress, ServerPort, type ServerTarget, SILENT_MS } from "./server-port.ts";

/** The maximum number of concurrent requests, watches not counted; further requests are queued. */
export const MAX_CONCURRENT_REQUESTS = 32;
/** `null`: one for each watch that needs it. */
const MAX_CONNECTIONS = { requests: MAX_CONCURRENT_REQUESTS, watches: null } as const;
const DEFAULT_TIMEOUT_MS = 30_000;
/** The maximum number of tries of one call, the first included. */
const MAX_ATTEMPTS = 5;
const DEFAULT_RETRY_AFTER_MS = 1_000;
/** The time in which a server whose silence is judged must answer, in milliseconds. */
const PROBE_MS = 2000;
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

interface Pools {
  /** The server to which connections went when the pools were made. */
  readonly target: ServerTarget;
  readonly credentials: KubeCredentials;
  readonly requests: Agent;
  readonly watches: Agent;
}

/** Sends requests with the connection's credentials, retries the requests that are safe to retry, and translates every failure. */
export class Transport {
  readonly #connection: KubeConnection;
  readonly #options: TransportOptions;
  readonly #clock: Clock;
  readonly #bucket: TokenBucket | undefined;
  readonly #port: ServerPort;
  readonly #random: () => number;
  #pools: Pools | undefined;
  /** A server is being judged. */
  #judging = false;
  /** The server that was found well last, and when, in milliseconds of the monotonic clock. */
  #well: { readonly target: ServerTarget; readonly at: number } | undefined;
  /** Agents whose credentials were replaced, and those with a request that timed out. Each closes when its last request ends. */
  readonly #retiring = new Set<Agent>();

  constructor(connection: KubeConnection, options: TransportOptions) {
    this.#connection = connection;
    this.#options = options;
    this.#clock = options.clock;
    this.#random = options.random ?? Math.random;
    const { others, proxyTo, tlsServerName } = connection;
    this.#port = new ServerPort(connection.server, { ...options, others, proxyTo, tlsServerName });
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
    const agents = [...this.#retiring, ...(this.#pools ? [this.#pools.requests, this.#pools.watches] : [])];
    this.#pools = undefined;
    this.#port.close();
    await Promise.all(agents.map((agent) => agent.destroy()));
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
    const pools = await this.#connect(signal);
    const { server } = this.#connection;
    const redial = (): void => {
      if (isTimeout(signal.reason)) this.#abandon(pool, pools[pool]);
    };
    signal.addEventListener("abort", redial, { once: true });
    const cancelDoubt = this.#doubt(pools);
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
    if (answer.statusCode >= 500 && this.#port.hasOthers) void this.#judge(pools);
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
    const trusted =
      this.#pools?.credentials.ca === undefined
        ? "this machine, as no certificate-authority is set"
        : this.#authorities;
    const distrust = distrustText(cause, trusted);
    const why =
      distrust === undefined ? `did not answer: ${withRouteHint(describeError(cause))}` : `is not trusted: ${distrust}`;
    return new KubeError("unreachable", `Cannot ${request.action}: ${this.#where} ${why}`, { cause });
  }

  async #connect(signal: AbortSignal): Promise<Pools> {
    const credentials = await this.#connection.credentials({ signal });
    const old = this.#pools;
    const target = this.#port.current;
    if (old !== undefined && old.target === target && sameTls(old.credentials, credentials)) {
      if (old.credentials !== credentials) this.#pools = { ...old, credentials };
      return this.#pools ?? old;
    }
    if (old !== undefined) for (const agent of [old.requests, old.watches]) this.#retire(agent);
    this.#pools = {
      target,
      credentials,
      requests: this.#agent(credentials, MAX_CONNECTIONS.requests),
      watches: this.#agent(credentials, MAX_CONNECTIONS.watches),
    };
    return this.#pools;
  }

  /** With `only`, its connections go to that server alone. */
  #agent(credentials: KubeCredentials, connections: number | null, only?: ServerTarget): Agent {
    const { insecureSkipTlsVerify, source } = this.#connection;
    return new Agent({
      connections,
      pipelining: 1,
      // These timeouts are off: the call's own deadline and the watch's idle limit apply instead.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: this.#port.connector(
        {
          rejectUnauthorized: !insecureSkipTlsVerify,
          ...this.#trust(credentials),
          ...(credentials.cert === undefined ? {} : { cert: credentials.cert }),
          ...(credentials.key === undefined ? {} : { key: credentials.key }),
        },
        source,
        only,
      ),
    });
  }

  /** Throws `KubeConfigError`. */
  #trust({ ca }: KubeCredentials): { readonly ca: string[]; readonly allowPartialTrustChain: true } | undefined {
    const { server, insecureSkipTlsVerify } = this.#connection;
    if (server.protocol !== "https:" || insecureSkipTlsVerify) return undefined;
    const trust: Trust | undefined = ca === undefined ? machineTrust() : trustIn(ca);
    if (trust !== undefined) return { ...trust, ca: [...trust.ca] };
    // The file may have been read while it was replaced.
    this.#connection.expire();
    throw new KubeConfigError(
      "invalid",
      `${this.#authorities} has no certificate that can be read: a PEM text with CERTIFICATE blocks is expected`,
    );
  }

  get #authorities(): string {
    return `the certificate-authority of ${this.#connection.source}`;
  }

  /** Judges the server each few seconds until the returned function is called. */
  #doubt(pools: Pools): () => void {
    let cancel = (): void => undefined;
    const wait = (): void => {
      cancel = this.#clock.after(SILENT_MS, () => {
        if (this.#port.hasOthers) void this.#judge(pools);
        wait();
      });
    };
    wait();
    return () => cancel();
  }

  /**
   * A request has no answer, or one of a server in trouble: a server that is not well is left for the next one that is, with all that waits for it. Reads are sent again. Where none is well
   * the one of now stays. `pools` are those of the request: connections of others may go elsewhere by now.
   */
  async #judge(pools: Pools): Promise<void> {
    const { target, credentials } = pools;
    // A busy server is not asked again for each of its slow answers.
    const isKnown = this.#well?.target === target && this.#clock.monotonic() - this.#well.at < SILENT_MS;
    if (this.#judging || isKnown) return;
    this.#judging = true;
    try {
      const isWell = await this.#isWell(credentials, target);
      if (isWell === true) this.#well = { target, at: this.#clock.monotonic() };
      if (isWell !== false) return;
      for (const other of this.#port.othersOf(target)) {
        if ((await this.#isWell(credentials, other)) !== true) continue;
        this.#port.leave(target, other);
        if (this.#pools?.target === target) this.#pools = undefined;
        const left = new KubeError("unreachable", "the API server is not well, and was left for another one");
        await Promise.all([pools.requests.destroy(left), pools.watches.destroy(left)]);
        return;
      }
    } finally {
      this.#judging = false;
    }
  }

  /** Resolves with true if a server answers a new connection with no error of its own; `undefined`: with credentials that cannot be used nothing is known of it. */
  async #isWell(credentials: KubeCredentials, target: ServerTarget): Promise<boolean | undefined> {
    const { server } = this.#connection;
    let agent: Agent | undefined;
    try {
      agent = this.#agent(credentials, 1, target);
      const path = `${withoutEnd(server.pathname, "/")}/livez`;
      const asking = (signal: AbortSignal): Promise<Dispatcher.ResponseData> | undefined =>
        agent?.request({ origin: server.origin, path, method: "GET", headers: credentials.headers, signal });
      const answer = await withDeadline(PROBE_MS, async (signal) => asking(signal), { clock: this.#clock });
      answer?.body.on("error", () => undefined).destroy();
      // Who may not ask for it gets 401 or 403 of a server that is well.
      return answer !== undefined && answer.statusCode < 500;
    } catch (error) {
      return error instanceof KubeConfigError ? undefined : false;
    } finally {
      await agent?.destroy();
    }
  }

  /**
   * The next requests have new connections: those of this agent may lead to a server that is gone without a reset, and an aborted request of
   * HTTP/2, which API servers choose, does not end its connection.
   */
  #abandon(pool: "requests" | "watches", agent: Agent): void {
    const current = this.#pools;
    if (current?.[pool] !== agent) return;
    this.#pools = { ...current, [pool]: this.#agent(current.credentials, MAX_CONNECTIONS[pool]) };
    this.#retire(agent);
  }

  #retire(agent: Agent): void {
    this.#retiring.add(agent);
    const forget = (): boolean => this.#retiring.delete(agent);
    // Closing fails only for an agent that `close` has destroyed meanwhile.
    agent.close().then(forget, forget);
  }
}

/** Returns true if a deadline aborted, of the call or of its caller; not a caller that left. */
function isTimeout(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "TimeoutError";
}

function sameTls(a: KubeCredentials, b: KubeCredentials): boolean {
  return a.ca === b.ca && a.cert === b.cert && a.key === b.key;
}
