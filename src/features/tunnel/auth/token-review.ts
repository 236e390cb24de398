import { Backoff, retry, Semaphore, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import { TokenBucket } from "#base/rate-limit";
import { type KubeApi, KubeConfigError, KubeError } from "#kube/client";
import { field } from "#kube/shape";
import type { TokenNames } from "../identity/credential.ts";
import { AgentAuthError, type AgentAuthenticator } from "../server/agent-auth.ts";
import { TokenCache, type TokenVerdict } from "./token-cache.ts";

const REVIEWS_PATH = "/apis/authentication.k8s.io/v1/tokenreviews";
/** An invalid token. Its review shows whether the API server answers reviews. */
const NO_TOKEN = "isthmus-readiness";
/** The time that the API server may take, in milliseconds. */
const REVIEW_TIMEOUT_MS = 10_000;
/** The time for which a review may wait for its turn, in milliseconds; half of an agent's time is left for the answer. */
const MAX_WAIT_MS = 5000;
/** Reviews at once: as many as the client has connections, so that none waits for one within its own time. */
const MAX_AT_ONCE = 32;
/** Limit of the reason for a refused token, characters. */
const MAX_WHY = 200;
/** Parts of a JWT that are shorter than this count as no secret, characters. */
const MIN_JWT_PART = 16;
/** The pod for which a token was made, and its node (Kubernetes 1.30 and later; KEP-4193). */
const POD_NAME = "authentication.kubernetes.io/pod-name";
const NODE_NAME = "authentication.kubernetes.io/node-name";
/** Maximum length of these names, characters. */
const MAX_EXTRA = 253;
/** The `Authorization` header with a bearer token (RFC 6750). Tokens of service accounts have about a kilobyte. */
const BEARER = /^Bearer ([\x21-\x7e]{1,16384})$/;

export interface TokenReviewOptions {
  /** The service account that agents must have. */
  readonly namespace: string;
  readonly serviceAccount: string;
  /** Audience that the token must be for. */
  readonly audience: string;
  /** Reviews a second, and the burst. Absent: no limit. */
  readonly rateLimit?: { readonly qps: number; readonly burst: number } | undefined;
}

/**
 * Authenticates agents by the token of their service account, with a TokenReview (docs/spec/tunnel.md#10). Verdicts are cached for a
 * short time, because all agents connect at once when a server restarts. A review that would not start in time is refused at once: if it waited, it
 * would hold up those behind it, and none would come in time.
 */
export class TokenReviewAuthenticator implements AgentAuthenticator {
  readonly #api: Pick<KubeApi, "request">;
  readonly #cache: TokenCache;
  readonly #clock: Clock;
  readonly #options: TokenReviewOptions;
  readonly #bucket: TokenBucket | undefined;
  readonly #turns = new Semaphore(MAX_AT_ONCE);

  constructor(deps: { readonly api: Pick<KubeApi, "request">; readonly clock: Clock }, options: TokenReviewOptions) {
    this.#api = deps.api;
    this.#cache = new TokenCache(deps.clock);
    this.#clock = deps.clock;
    this.#options = options;
    const { rateLimit } = options;
    this.#bucket =
      rateLimit === undefined
        ? undefined
        : new TokenBucket({ ratePerSecond: rateLimit.qps, burst: rateLimit.burst, clock: deps.clock });
  }

  async authenticate(
    authorization: readonly string[],
    { signal }: { readonly signal: AbortSignal },
  ): Promise<TokenNames> {
    const token = BEARER.exec(authorization[0] ?? "")?.[1];
    if (authorization.length !== 1 || token === undefined) {
      const found = authorization.length === 1 ? "a header of another form" : String(authorization.length);
      throw new AgentAuthError("unauthenticated", `expected one "authorization: Bearer TOKEN", but found ${found}`);
    }
    const verdict = this.#cache.get(token) ?? (await this.#reviewInTurn(token, signal));
    if (verdict.kind === "refused") throw new AgentAuthError("unauthenticated", verdict.why);
    return verdict.names;
  }

  /** Reviews an invalid token until the API server has answered once. Failures degrade `health` and are tried again. */
  async checkApi(health: HealthPart, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    await retry(() => this.#review(NO_TOKEN, signal), {
      signal,
      clock: this.#clock,
      backoff: new Backoff({ initialMs: 500, maxMs: 5000 }),
      isPassing: (error) => error instanceof AgentAuthError,
      onFailure: (error) => health.degraded(error),
    });
    health.ok();
  }

  async #reviewInTurn(token: string, signal: AbortSignal): Promise<TokenVerdict> {
    const waitMs = this.#bucket?.reserve() ?? 0;
    if (waitMs > MAX_WAIT_MS) {
      this.#bucket?.refund();
      throw new AgentAuthError("unavailable", "too many tokens wait for their review (--kubeconfig-qps)");
    }
    if (waitMs > 0) await this.#sleep(waitMs, signal);
    const tooLate = new AbortController();
    const cancel = this.#clock.after(MAX_WAIT_MS - waitMs, () => tooLate.abort(), { unref: true });
    const inTurn = AbortSignal.any([signal, tooLate.signal]);
    const review = (): Promise<TokenVerdict> => {
      cancel();
      return this.#review(token, signal);
    };
    try {
      return await this.#turns.run(review, { signal: inTurn });
    } catch (error) {
      cancel();
      if (error instanceof AgentAuthError || !inTurn.aborted) throw error;
      throw new AgentAuthError("unavailable", "a token's review did not start in time", { cause: error });
    }
  }

  async #sleep(waitMs: number, signal: AbortSignal): Promise<void> {
    try {
      await sleep(waitMs, { signal, clock: this.#clock });
    } catch (error) {
      if (!signal.aborted) throw error;
      this.#bucket?.refund();
      throw new AgentAuthError("unavailable", "a token's review did not start in time", { cause: error });
    }
  }

  async #review(token: string, signal: AbortSignal): Promise<TokenVerdict> {
    let answer: unknown;
    try {
      answer = await this.#api.request(
        {
          method: "POST",
          path: REVIEWS_PATH,
          body: {
            apiVersion: "authentication.k8s.io/v1",
            kind: "TokenReview",
            metadata: {},
            spec: { token, audiences: [this.#options.audience] },
          },
        },
        { signal, timeoutMs: REVIEW_TIMEOUT_MS },
      );
    } catch (error) {
      const expected = error instanceof KubeError || error instanceof KubeConfigError || signal.aborted;
      if (!expected) throw error;
      throw new AgentAuthError("unavailable", `cannot have a token reviewed: ${describeError(error)}`, {
        cause: error,
      });
    }
    const verdict = verdictOf(answer, { ...this.#options, token });
    this.#cache.set(token, verdict);
    return verdict;
  }
}

/** The verdict of an answered TokenReview. Pure. Refuses every answer that is not exactly as expected; the reason contains no token. */
export function verdictOf(review: unknown, options: TokenReviewOptions & { readonly token: string }): TokenVerdict {
  const refused = (why: string): TokenVerdict => ({
    kind: "refused",
    why: withoutToken(why, options.token).slice(0, MAX_WHY),
  });
  const status = field(review, "status");
  const error = field(status, "error");
  if (typeof error === "string" && error !== "") return refused(`the API server answered: ${error}`);
  if (field(status, "authenticated") !== true) return refused("the API server does not accept the token");
  const username = field(field(status, "user"), "username");
  const parts = typeof username === "string" ? username.split(":") : [];
  const [system, kind, namespace, name] = parts;
  const { namespace: wantedNamespace, serviceAccount, audience } = options;
  if (parts.length !== 4 || system !== "system" || kind !== "serviceaccount") {
    return refused(`the token belongs to ${JSON.stringify(username)}, which is not a service account`);
  }
  if (namespace !== wantedNamespace || name !== serviceAccount) {
    return refused(
      `the token belongs to service account ${namespace}/${name}, not ${wantedNamespace}/${serviceAccount}`,
    );
  }
  const audiences = field(status, "audiences");
  if (!Array.isArray(audiences) || !audiences.includes(audience)) {
    return refused(`the token is not for audience ${JSON.stringify(audience)}`);
  }
  const extra = field(field(status, "user"), "extra");
  const names = { account: `${namespace}/${name}`, pod: extraOf(extra, POD_NAME), node: extraOf(extra, NODE_NAME) };
  return { kind: "accepted", names };
}

/** The only value of a key of the user's extra fields, which are lists. */
function extraOf(extra: unknown, key: string): string | undefined {
  const values = field(extra, key);
  if (!Array.isArray(values) || values.length !== 1) return undefined;
  const [value]: readonly unknown[] = values;
  return typeof value === "string" && value !== "" && value.length <= MAX_EXTRA ? value : undefined;
}

/** The text without the token and the parts of a JWT, which the API server may quote. */
function withoutToken(text: string, token: string): string {
  const parts = token.split(".").filter((part) => part.length >= MIN_JWT_PART);
  return [token, ...parts].reduce((rest, secret) => rest.replaceAll(secret, "[token]"), text);
}
