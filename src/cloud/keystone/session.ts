import { type AbortOptions, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { type Authenticator, CloudError, isCloudError, RestClient } from "#cloud/rest";
import type { CloudAccess } from "./credentials.ts";
import {
  authBody,
  type EndpointChoice,
  endpointOf,
  type KeystoneCredentials,
  type KeystoneToken,
  keystoneFault,
  parseToken,
  versionedUrl,
} from "./token.ts";

/** The share of a token's life after which it is renewed. */
const RENEW_AT = 0.8;
/** A renewal that failed is tried again with the first request after this time, in milliseconds, while the old token lasts. */
const RETRY_MS = 10_000;

export interface SessionDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

export interface SessionOptions {
  readonly access: CloudAccess;
  /** The certificates of the access's `caFile`. */
  readonly ca?: string | undefined;
  /** The type of the service whose requests are made: `network`. */
  readonly service: string;
  /** Called after each attempt to get a token: `vpc_token_refresh_total`. */
  readonly onRefresh?: ((succeeded: boolean) => void) | undefined;
}

/** The right to make requests to one service, as {@link SessionOptions.access} says. */
export function openSession(deps: SessionDeps, options: SessionOptions): Authenticator & AsyncDisposable {
  const { credentials } = options.access;
  switch (credentials.kind) {
    case "none":
      return fixed(credentials.endpoint, {});
    case "token":
      return fixed(credentials.endpoint, { "x-auth-token": credentials.token });
    case "password":
    case "application-credential":
      return new KeystoneSession(deps, options, credentials);
  }
}

function fixed(endpoint: URL, headers: Readonly<Record<string, string>>): Authenticator & AsyncDisposable {
  return {
    endpoint: async () => endpoint,
    headers: async () => headers,
    refused: () => false,
    [Symbol.asyncDispose]: async () => undefined,
  };
}

interface Issued extends KeystoneToken {
  /** When the next one is asked for, on the monotonic clock, in milliseconds. */
  renewAt: number;
  /** From when on it is not used, on the monotonic clock, in milliseconds. */
  readonly endsAt: number;
}

/**
 * A token of Keystone, renewed at 80 % of its life and after it was refused. However many requests need one, one authentication is under
 * way; its failure is that of all of them. While an old token lasts, a renewal that fails is no failure of requests.
 */
class KeystoneSession implements Authenticator, AsyncDisposable {
  readonly #deps: SessionDeps;
  readonly #options: SessionOptions;
  readonly #credentials: KeystoneCredentials;
  readonly #choice: EndpointChoice;
  readonly #rest: RestClient;
  readonly #ended = new AbortController();
  #issued: Issued | undefined;
  #renewal: Promise<Issued> | undefined;

  constructor(deps: SessionDeps, options: SessionOptions, credentials: KeystoneCredentials) {
    this.#deps = deps;
    this.#options = options;
    this.#credentials = credentials;
    const { access, ca, service } = options;
    this.#choice = { type: service, interface: access.interface, region: access.region };
    const auth = fixed(versionedUrl(credentials.authUrl), {});
    const faultOf = keystoneFault;
    this.#rest = new RestClient(
      { ...deps, auth },
      { service: "Keystone", ca, verifiesTls: access.verifiesTls, faultOf },
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await this.#rest[Symbol.asyncDispose]();
  }

  async endpoint(options: AbortOptions): Promise<URL> {
    const issued = await this.#current(options);
    try {
      return endpointOf(issued, this.#choice);
    } catch (error) {
      throw asRefusal(error);
    }
  }

  async headers(options: AbortOptions): Promise<Readonly<Record<string, string>>> {
    return { "x-auth-token": (await this.#current(options)).token };
  }

  refused(headers: Readonly<Record<string, string>>): boolean {
    if (this.#issued !== undefined && this.#issued.token === headers["x-auth-token"]) this.#issued = undefined;
    return true;
  }

  async #current({ signal }: AbortOptions): Promise<Issued> {
    const nowMs = this.#deps.clock.monotonic();
    const issued = this.#issued;
    if (issued !== undefined && nowMs < issued.renewAt) return issued;
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = undefined;
    });
    if (issued === undefined || nowMs >= issued.endsAt) return await unlessAborted(this.#renewal, { signal });
    // The old one lasts: requests go on with it, and the failure of the renewal is logged where it happens.
    issued.renewAt = nowMs + RETRY_MS;
    this.#renewal.catch((error: unknown) => this.#deps.log.warn("the token cannot be renewed", { error }));
    return issued;
  }

  async #renew(): Promise<Issued> {
    const request = {
      method: "POST",
      path: "/auth/tokens",
      body: authBody(this.#credentials),
      action: "authenticate",
      operation: "authenticate",
    } as const;
    let isIssued = false;
    try {
      const { headers, body } = await this.#rest.send(request, { signal: this.#ended.signal });
      const token = parseToken(headers["x-subject-token"], body, this.#deps.clock.now());
      const nowMs = this.#deps.clock.monotonic();
      this.#issued = { ...token, renewAt: nowMs + token.lifeMs * RENEW_AT, endsAt: nowMs + token.lifeMs };
      isIssued = true;
      return this.#issued;
    } catch (error) {
      throw asRefusal(error);
    } finally {
      this.#options.onRefresh?.(isIssued);
    }
  }
}

/**
 * A refusal of Keystone as one of the credentials, whatever its status: it answers 404 for an application credential that was deleted, and 400 for a
 * project that is disabled. The service's own 404 says that an object is gone, and a port must not be taken for gone.
 */
function asRefusal(error: unknown): unknown {
  if (!isCloudError(error) || error.isAmbiguous || error.code === "circuit-open") return error;
  const { httpStatus, type, requestId, retryAfterMs } = error;
  return new CloudError("unauthorized", error.message, { httpStatus, type, requestId, retryAfterMs, cause: error });
}
