import { type AbortOptions, Backoff, retry, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import {
  decodeAuthenticateResponse,
  decodeRangeResponse,
  ETCD_AUTHENTICATE,
  ETCD_RANGE,
  encodeAuthenticateRequest,
  encodeRangeRequest,
  type RangeRequest,
  type RangeResponse,
} from "#wire/etcd";
import { GrpcCode } from "#wire/grpc";
import { MigratorError } from "./errors.ts";
import { EndpointError, EtcdEndpoint, type EtcdTls } from "./etcd-endpoint.ts";

/** The endpoints and credentials of etcd. */
export interface EtcdOptions {
  /** At least one endpoint, such as `http://127.0.0.1:2379`. */
  readonly endpoints: readonly URL[];
  readonly tls: EtcdTls;
  /** Absent: no authentication by name; etcd may then use the name in the client certificate. */
  readonly user?: { readonly name: string; readonly password: string } | undefined;
  /** The time for one request to one endpoint, connecting included, in milliseconds. */
  readonly timeoutMs: number;
}

/** The number of tries at each endpoint for one request. */
const MAX_ROUNDS = 4;
/** The message of etcd's mvcc for a compacted revision; other faults have the same status. */
const COMPACTED = /has been compacted/;
const NO_AUTHENTICATION = /authentication is not enabled/;

/**
 * Reads ranges of keys from etcd. A request that gets no answer goes to the next endpoint; an expired token is replaced. Dispose it to
 * close its connections.
 */
export class EtcdClient implements Disposable {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #options: EtcdOptions;
  readonly #endpoints: readonly EtcdEndpoint[];
  /** The endpoint that answered last. */
  #at = 0;
  #token: string | undefined;
  /** True after etcd has answered that authentication is off: no token is requested. */
  #isOpen = false;

  constructor(deps: { readonly clock: Clock; readonly log: Logger }, options: EtcdOptions) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#options = options;
    this.#endpoints = options.endpoints.map((url) => new EtcdEndpoint(url, options.tls));
  }

  /** One page of a range. Rejects with {@link MigratorError} `etcd-unreachable`, `etcd-refused` or `compacted`. */
  async range(request: RangeRequest, options: AbortOptions): Promise<RangeResponse> {
    const message = encodeRangeRequest(request);
    for (let renewals = 0; ; renewals += 1) {
      await this.#authenticate(options);
      try {
        return decodeRangeResponse(await this.#call(ETCD_RANGE, message, options));
      } catch (error) {
        if (!(error instanceof EndpointError)) throw error;
        // Tokens expire, and a restarted member has lost all tokens.
        if (error.status !== GrpcCode.unauthenticated || this.#token === undefined || renewals > 0)
          throw refusal(error);
        this.#token = undefined;
      }
    }
  }

  [Symbol.dispose](): void {
    for (const endpoint of this.#endpoints) endpoint.close();
  }

  async #authenticate(options: AbortOptions): Promise<void> {
    const { user } = this.#options;
    if (user === undefined || this.#token !== undefined || this.#isOpen) return;
    try {
      const message = encodeAuthenticateRequest(user.name, user.password);
      this.#token = decodeAuthenticateResponse(await this.#call(ETCD_AUTHENTICATE, message, options));
    } catch (error) {
      if (!(error instanceof EndpointError)) throw error;
      if (!NO_AUTHENTICATION.test(error.message)) throw refusal(error);
      this.#isOpen = true;
      this.#log.warn("authentication is off in etcd; --etcd-username is not used", { user: user.name });
    }
  }

  /** Tries the endpoints in rounds. Rejects with {@link EndpointError} `status`, or {@link MigratorError} `etcd-unreachable`. */
  #call(path: string, message: Uint8Array, options: AbortOptions): Promise<Uint8Array> {
    return retry(() => this.#callEach(path, message, options), {
      ...options,
      clock: this.#clock,
      backoff: new Backoff({ initialMs: 100, maxMs: 1000 }),
      isPassing: (error) => error instanceof MigratorError && error.code === "etcd-unreachable",
      maxTries: MAX_ROUNDS,
    });
  }

  /** One round, which begins at the endpoint that answered last. */
  async #callEach(path: string, message: Uint8Array, options: AbortOptions): Promise<Uint8Array> {
    const failures: unknown[] = [];
    for (let tries = 0; tries < this.#endpoints.length; tries += 1) {
      const at = (this.#at + tries) % this.#endpoints.length;
      const endpoint = this.#endpoints[at];
      if (endpoint === undefined) break;
      try {
        const answer = await this.#callOne(endpoint, path, message, options);
        this.#at = at;
        return answer;
      } catch (error) {
        if (!(error instanceof EndpointError)) throw error;
        // A member without a leader answers with an error, but another member may have a leader.
        if (error.code === "status" && error.status !== GrpcCode.unavailable) {
          this.#at = at;
          throw error;
        }
        failures.push(error);
      }
    }
    throw new MigratorError(
      "etcd-unreachable",
      "no endpoint of etcd answers; check --etcd-endpoints and --etcd-tls-ca",
      {
        cause: new AggregateError(failures, ""),
      },
    );
  }

  async #callOne(
    endpoint: EtcdEndpoint,
    path: string,
    message: Uint8Array,
    options: AbortOptions,
  ): Promise<Uint8Array> {
    const { timeoutMs } = this.#options;
    try {
      return await withDeadline(timeoutMs, (signal) => endpoint.call(path, message, { token: this.#token, signal }), {
        ...options,
        clock: this.#clock,
      });
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof DOMException && error.name === "TimeoutError")) throw error;
      throw new EndpointError("transport", `etcd ${endpoint.url.origin}: no answer came within ${timeoutMs} ms`, {
        cause: error,
      });
    }
  }
}

function refusal(error: EndpointError): MigratorError {
  if (COMPACTED.test(error.message)) return new MigratorError("compacted", error.message, { cause: error });
  const fix = "check --etcd-username, --etcd-password and --etcd-tls-cert, and the role of that user";
  return new MigratorError("etcd-refused", `${error.message}; ${fix}`, { cause: error });
}
