import { createHmac, randomBytes } from "node:crypto";
import type { Clock } from "#base/clock";
import { keepNewest } from "#base/collections";
import { describeError } from "#base/errors";
import { TokenBucket } from "#base/rate-limit";
import { type KubeApi, KubeConfigError, KubeError } from "#kube/client";
import { field } from "#kube/shape";

/**
 * The API server says one of these of a request. `unauthenticated`: there is no token, or none that it knows. `forbidden`: the token's account may not do it. `unavailable`: it
 * is not known, because the API server did not answer or too many reviews are under way.
 */
export type Access =
  | { readonly kind: "allowed" }
  | { readonly kind: "unauthenticated" }
  | { readonly kind: "forbidden" }
  | { readonly kind: "unavailable"; readonly why: string };

/** A client asks for this (`nonResourceAttributes` of a SubjectAccessReview). */
export interface AccessQuestion {
  readonly path: string;
  /** A method of HTTP in small letters. */
  readonly verb: string;
}

const TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/** The API server may take this long for each of the two, in milliseconds. A scraper waits for 10 s commonly. */
const REVIEW_MS = 4000;
/** Verdicts are cached for so long, in milliseconds. */
const ALLOWED_MS = 60_000;
const REFUSED_MS = 10_000;
/** Verdicts and tokens that are remembered: clients can send any number. The oldest goes. */
const MAX_VERDICTS = 1000;
const MAX_TRUSTED = 100;
/** Reviews under way at once; more are refused. Tokens that were not allowed before have half of them: while the API server is slow, guesses must not hold all. */
const MAX_AT_ONCE = 8;
const MAX_STRANGERS = 4;
/** Reviews of tokens that were not allowed before: others' guesses must not use up what the API server takes from this program. */
const STRANGERS = { ratePerSecond: 5, burst: 20 } as const;
/** The `Authorization` field with a bearer token (RFC 6750). */
const BEARER = /^Bearer ([\x21-\x7e]{1,16384})$/;

/** Asks the API server who clients are and what they may. Nothing is open while it does not answer. */
export class AccessReviews {
  readonly #api: Pick<KubeApi, "request">;
  readonly #clock: Clock;
  readonly #bucket: TokenBucket;
  /** Ids are HMACs with a key of this process, so that no token stays in memory. */
  readonly #key = randomBytes(32);
  readonly #verdicts = new Map<string, { readonly access: Access; readonly until: number }>();
  /** Ids of tokens that were allowed something. */
  readonly #trusted = new Set<string>();
  readonly #underWay = new Map<string, Promise<Access>>();
  /** The number of those that are of strangers' tokens. */
  #strangers = 0;

  constructor({ api, clock }: { readonly api: Pick<KubeApi, "request">; readonly clock: Clock }) {
    this.#api = api;
    this.#clock = clock;
    this.#bucket = new TokenBucket({ ...STRANGERS, clock });
  }

  /** `authorization`: all values of that field. Rejects for bugs alone. */
  async judge(authorization: readonly string[], question: AccessQuestion): Promise<Access> {
    const token = authorization.length === 1 ? tokenOf(authorization[0] ?? "") : undefined;
    if (token === undefined) return { kind: "unauthenticated" };
    const { path, verb } = question;
    const id = this.#id(JSON.stringify([token, verb, path]));
    const known = this.#verdicts.get(id);
    if (known !== undefined && known.until > this.#clock.monotonic()) return known.access;
    this.#verdicts.delete(id);
    const underWay = this.#underWay.get(id);
    if (underWay !== undefined) return await underWay;
    const holder = this.#id(token);
    const isStranger = !this.#trusted.has(holder);
    if (this.#underWay.size >= MAX_AT_ONCE || (isStranger && this.#strangers >= MAX_STRANGERS))
      return { kind: "unavailable", why: "too many reviews are under way" };
    if (isStranger && !this.#bucket.tryTake()) return { kind: "unavailable", why: "too many unknown tokens came" };
    this.#strangers += Number(isStranger);
    const review = this.#review(token, question).finally(() => {
      this.#underWay.delete(id);
      this.#strangers -= Number(isStranger);
    });
    this.#underWay.set(id, review);
    const access = await review;
    if (access.kind === "allowed") this.#trust(holder);
    if (access.kind !== "unavailable") this.#keep(id, access);
    return access;
  }

  #id(text: string): string {
    return createHmac("sha256", this.#key).update(text).digest("base64");
  }

  #trust(holder: string): void {
    this.#trusted.delete(holder);
    this.#trusted.add(holder);
    keepNewest(this.#trusted, MAX_TRUSTED);
  }

  #keep(id: string, access: Access): void {
    const until = this.#clock.monotonic() + (access.kind === "allowed" ? ALLOWED_MS : REFUSED_MS);
    this.#verdicts.delete(id);
    this.#verdicts.set(id, { access, until });
    keepNewest(this.#verdicts, MAX_VERDICTS);
  }

  async #review(token: string, { path, verb }: AccessQuestion): Promise<Access> {
    try {
      const who = await this.#ask(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", { token });
      const user = field(who, "user");
      const name = field(user, "username");
      if (field(who, "authenticated") !== true || typeof name !== "string" || name === "")
        return { kind: "unauthenticated" };
      const spec = {
        user: name,
        uid: field(user, "uid"),
        groups: field(user, "groups"),
        extra: field(user, "extra"),
        nonResourceAttributes: { path, verb },
      };
      const may = await this.#ask(ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec);
      const isAllowed = field(may, "allowed") === true && field(may, "denied") !== true;
      return { kind: isAllowed ? "allowed" : "forbidden" };
    } catch (error) {
      if (!(error instanceof KubeError || error instanceof KubeConfigError)) throw error;
      return { kind: "unavailable", why: describeError(error) };
    }
  }

  /** The status of a review. */
  async #ask(path: string, apiVersion: string, kind: string, spec: unknown): Promise<unknown> {
    const body = { apiVersion, kind, metadata: {}, spec };
    const answer = await this.#api.request({ method: "POST", path, body }, { timeoutMs: REVIEW_MS });
    return field(answer, "status");
  }
}

/** Pure: the token of an `Authorization` field. The scheme has no case (RFC 9110 11.1). */
function tokenOf(value: string): string | undefined {
  const scheme = "Bearer";
  const isBearer = value.slice(0, scheme.length).toLowerCase() === scheme.toLowerCase();
  return isBearer ? BEARER.exec(`${scheme}${value.slice(scheme.length)}`)?.[1] : undefined;
}
