import { type AbortOptions, withDeadline } from "#base/async";
import { distrustText, machineTrust, trustIn } from "#base/authorities";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { withoutEnd } from "#base/text";
import { Agent, type Dispatcher, errors as undiciErrors } from "#base/undici";
import { readAnswer } from "./answer.ts";
import { Circuit } from "./circuit.ts";
import { CloudError, codeOfStatus, isCloudError } from "./errors.ts";
import { redactText } from "./redact.ts";

/** Connections to one server; more requests wait for one. */
const MAX_CONNECTIONS = 16;
/** For how long a request may take that says nothing else, in milliseconds. */
const DEFAULT_TIMEOUT_MS = 10_000;

/** One HTTP request with JSON. */
export interface RestRequest {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** The path after that of the base URL, with a leading slash. */
  readonly path: string;
  /** Pairs of the query, in order; a name may come several times. */
  readonly query?: readonly (readonly [name: string, value: string])[] | undefined;
  readonly body?: object | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Default 10 s. */
  readonly timeoutMs?: number | undefined;
  /** The action, for messages, such as `create 3 ports`. */
  readonly action: string;
  /** The kind of the request, for metrics, such as `create-ports`. */
  readonly operation: string;
}

/** An answer with a status below 400. */
export interface RestAnswer {
  readonly status: number;
  /** The JSON value; `undefined` if there was no body. */
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;
}

/** One request that has ended, for metrics and logs. */
export interface RestSample {
  readonly operation: string;
  /** The HTTP status, or the code of the error without an answer. */
  readonly code: string;
  /** The server's name of the fault, or empty. */
  readonly type: string;
  readonly durationMs: number;
}

/** The endpoint and the credentials of requests. */
export interface Authenticator {
  /** The base URL of the API. Rejects with {@link CloudError}. */
  endpoint(options: AbortOptions): Promise<URL>;
  /** The headers of a request. Rejects with {@link CloudError}. */
  headers(options: AbortOptions): Promise<Readonly<Record<string, string>>>;
  /** The server has refused these headers. True if other ones may be accepted. */
  refused(headers: Readonly<Record<string, string>>): boolean;
}

export interface RestClientDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly auth: Authenticator;
}

export interface RestClientOptions {
  /** The name of the service in messages: `Neutron`. */
  readonly service: string;
  /** Certificates of authorities, in PEM, in place of the machine's. */
  readonly ca?: string | undefined;
  /** Default true. */
  readonly verifiesTls?: boolean | undefined;
  /** Reads the error from the JSON of an answer of 400 or more. */
  readonly faultOf: (body: unknown) => { readonly type?: string; readonly message?: string };
  readonly onRequest?: ((sample: RestSample) => void) | undefined;
  /** Called when requests stop being sent because none is answered, and when they are sent again. */
  readonly onCircuit?: ((isOpen: boolean) => void) | undefined;
}

/**
 * Requests to one service of a cloud. Each has a deadline. One that is refused as unauthorised is sent once more with other credentials. No
 * other is sent twice: what an unanswered write has done is for the caller to look up.
 */
export class RestClient implements AsyncDisposable {
  readonly #deps: RestClientDeps;
  readonly #options: RestClientOptions;
  readonly #circuit: Circuit;
  readonly #agent: Agent;

  constructor(deps: RestClientDeps, options: RestClientOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#circuit = new Circuit(deps, options.onCircuit);
    const trust = options.ca === undefined ? machineTrust() : trustIn(options.ca);
    this.#agent = new Agent({
      connections: MAX_CONNECTIONS,
      pipelining: 1,
      allowH2: false,
      // The deadline of each request applies instead.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: {
        rejectUnauthorized: options.verifiesTls ?? true,
        ...(trust === undefined ? {} : { ...trust, ca: [...trust.ca] }),
      },
    });
  }

  /** Ends all connections. Requests under way fail. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }

  /** Sends a request. Rejects with {@link CloudError}, and with the signal's reason. */
  async send(request: RestRequest, { signal }: AbortOptions = {}): Promise<RestAnswer> {
    const first = await this.#deps.auth.headers({ signal });
    try {
      return await this.#attempt(request, first, signal);
    } catch (error) {
      if (!isCloudError(error, "unauthorized") || !this.#deps.auth.refused(first)) throw error;
      return this.#attempt(request, await this.#deps.auth.headers({ signal }), signal);
    }
  }

  async #attempt(
    request: RestRequest,
    auth: Readonly<Record<string, string>>,
    signal: AbortSignal | undefined,
  ): Promise<RestAnswer> {
    const { clock, log } = this.#deps;
    const { service } = this.#options;
    const base = await this.#deps.auth.endpoint({ signal });
    const waitMs = this.#circuit.admit();
    if (waitMs > 0) {
      const text = `Cannot ${request.action}: ${service} at ${base.host} has not answered, and is asked again in ${Math.ceil(waitMs / 1000)} s`;
      throw new CloudError("circuit-open", text, { retryAfterMs: waitMs });
    }
    const startMs = clock.monotonic();
    const done = (code: string, type: string, requestId: string | undefined): void => {
      const durationMs = clock.monotonic() - startMs;
      this.#options.onRequest?.({ operation: request.operation, code, type, durationMs });
      log.debug("request", { operation: request.operation, code, requestId, durationMs: Math.round(durationMs) });
    };
    try {
      const answer = await this.#exchange(request, base, auth, signal);
      this.#circuit.succeeded();
      done(String(answer.status), "", answer.headers["x-openstack-request-id"]);
      return answer;
    } catch (error) {
      this.#settle(error);
      if (isCloudError(error)) done(String(error.httpStatus ?? error.code), error.type ?? "", error.requestId);
      throw error;
    }
  }

  #settle(error: unknown): void {
    if (!isCloudError(error)) this.#circuit.abandoned();
    else if (error.httpStatus === 503) this.#circuit.failed(true);
    else if (error.httpStatus === undefined && error.code !== "bad-response") this.#circuit.failed(false);
    else this.#circuit.succeeded();
  }

  async #exchange(
    request: RestRequest,
    base: URL,
    auth: Readonly<Record<string, string>>,
    signal: AbortSignal | undefined,
  ): Promise<RestAnswer> {
    const { timeoutMs = DEFAULT_TIMEOUT_MS } = request;
    const cannot = `Cannot ${request.action}: ${this.#options.service} at ${base.host}`;
    try {
      return await withDeadline(
        timeoutMs,
        async (limit) => {
          const answer = await this.#agent.request(this.#dispatch(request, base, auth, limit));
          return await this.#read(answer, cannot);
        },
        { signal, clock: this.#deps.clock },
      );
    } catch (error) {
      signal?.throwIfAborted();
      // A wrong argument is a bug, not the network's doing.
      if (isCloudError(error) || error instanceof undiciErrors.InvalidArgumentError) throw error;
      if (error instanceof DOMException && error.name === "TimeoutError") {
        throw new CloudError("timeout", `${cannot} did not answer within ${timeoutMs} ms`, { cause: error });
      }
      const trusted = this.#options.ca === undefined ? "this machine, as no cacert is set" : "its cacert";
      const distrust = distrustText(error, trusted);
      const why = distrust === undefined ? `did not answer: ${describeError(error)}` : `is not trusted: ${distrust}`;
      throw new CloudError("unreachable", `${cannot} ${why}`, { cause: error });
    }
  }

  #dispatch(
    request: RestRequest,
    base: URL,
    auth: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Dispatcher.RequestOptions & { origin: string } {
    const query = new URLSearchParams((request.query ?? []).map(([name, value]): [string, string] => [name, value]));
    const body = request.body === undefined ? null : JSON.stringify(request.body);
    return {
      origin: base.origin,
      path: `${withoutEnd(base.pathname, "/")}${request.path}${query.size === 0 ? "" : `?${query}`}`,
      method: request.method,
      headers: {
        accept: "application/json",
        "user-agent": "isthmus",
        ...(body === null ? {} : { "content-type": "application/json" }),
        ...request.headers,
        ...auth,
      },
      body,
      signal,
    };
  }

  async #read(answer: Dispatcher.ResponseData, cannot: string): Promise<RestAnswer> {
    const { status, headers, text, body } = await readAnswer(answer);
    const requestId = headers["x-openstack-request-id"];
    if (status >= 400) {
      const { type, message } = this.#options.faultOf(body);
      // An error page may have as many bytes as an answer can: what is not shown is not read.
      const page = (message ?? text).slice(0, MAX_PAGE_LENGTH);
      const words = redactText(page.replaceAll(/\s+/g, " ").trim()).slice(0, MAX_WORDS_LENGTH);
      const named = [`HTTP ${status}`, type, words].filter((part) => part !== undefined && part !== "").join(" ");
      // The API itself answers in JSON: a page with these is of a balancer before it, which may serve the next request.
      const isOfBalancer = body === undefined && OF_BALANCERS.has(status);
      throw new CloudError(isOfBalancer ? "bad-response" : codeOfStatus(status), `${cannot} answered ${named}`, {
        httpStatus: status,
        type,
        requestId,
        retryAfterMs: retryAfterMs(headers["retry-after"], this.#deps.clock.now()),
      });
    }
    if (body === undefined && text !== "") {
      throw new CloudError("bad-response", `${cannot} answered HTTP ${status} with what is not JSON`, {
        httpStatus: status,
        requestId,
      });
    }
    return { status, headers, body };
  }
}

/** Statuses of refused requests that balancers answer with on their own: a request that they cannot read, or have no server for. */
const OF_BALANCERS: ReadonlySet<number> = new Set([400, 405, 421, 431]);
/** The number of characters of an error page that are read, and the number that an error shows. */
const MAX_PAGE_LENGTH = 4096;
const MAX_WORDS_LENGTH = 400;

/** The longest pause that a server can ask for, in milliseconds. */
const MAX_RETRY_AFTER_MS = 300_000;

/** `Retry-After` of RFC 9110, section 10.2.3, in milliseconds from `nowMs`; `undefined` if it is absent or not readable. */
export function retryAfterMs(text: string | undefined, nowMs: number): number | undefined {
  if (text === undefined) return undefined;
  const isDate = /^[A-Z][a-z]{2}, /.test(text);
  const ms = /^\d{1,9}$/.test(text.trim()) ? Number(text) * 1000 : isDate ? Date.parse(text) - nowMs : Number.NaN;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), MAX_RETRY_AFTER_MS);
}
