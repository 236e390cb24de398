import { createHmac, randomBytes } from "node:crypto";
import type { Clock } from "#base/clock";
import { keepNewest } from "#base/collections";
import type { TokenNames } from "../identity/credential.ts";

/** The API server's answer about a token. */
export type TokenVerdict =
  | { readonly kind: "accepted"; readonly names: TokenNames }
  | { readonly kind: "refused"; readonly why: string };

/** The time for which verdicts are cached, milliseconds (docs/spec/tunnel.md#10). */
const ACCEPTED_MS = 60_000;
const REFUSED_MS = 10_000;
/** Maximum of tokens in the cache, which needs a limit because peers can send any number of tokens. */
const MAX_TOKENS = 10_000;

interface Entry {
  readonly verdict: TokenVerdict;
  /** `Clock.monotonic` milliseconds: a step of the wall clock changes no time of caching. */
  readonly until: number;
  /** The token's own expiry, milliseconds since the epoch. */
  readonly expiry: number;
}

/** A cache of verdicts. It keeps HMACs of tokens with a key of this process, not the tokens. */
export class TokenCache {
  readonly #clock: Clock;
  readonly #key = randomBytes(32);
  readonly #verdicts = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The verdict about a token, if it is cached and has not expired. */
  get(token: string): TokenVerdict | undefined {
    const id = this.#id(token);
    const entry = this.#verdicts.get(id);
    if (entry === undefined) return undefined;
    if (entry.until > this.#clock.monotonic() && entry.expiry > this.#clock.now()) return entry.verdict;
    this.#verdicts.delete(id);
    return undefined;
  }

  /** Caches a verdict. An accepted verdict is never cached beyond the token's own expiry. */
  set(token: string, verdict: TokenVerdict): void {
    const isAccepted = verdict.kind === "accepted";
    const until = this.#clock.monotonic() + (isAccepted ? ACCEPTED_MS : REFUSED_MS);
    const expiry = isAccepted ? expiryOf(token) : Number.POSITIVE_INFINITY;
    const id = this.#id(token);
    this.#verdicts.delete(id);
    this.#verdicts.set(id, { verdict, until, expiry });
    keepNewest(this.#verdicts, MAX_TOKENS);
  }

  #id(token: string): string {
    return createHmac("sha256", this.#key).update(token).digest("base64");
  }
}

/**
 * The expiry claim of a JWT, milliseconds since the epoch; infinity if the token is not a JWT or has no such claim. The API server has
 * checked the signature.
 */
export function expiryOf(token: string): number {
  const [, payload = "", signature] = token.split(".");
  if (signature === undefined) return Number.POSITIVE_INFINITY;
  let claims: unknown;
  try {
    claims = JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
  } catch (error) {
    // Opaque tokens may have dots too.
    if (error instanceof SyntaxError) return Number.POSITIVE_INFINITY;
    throw error;
  }
  const exp: unknown = typeof claims === "object" && claims !== null && "exp" in claims ? claims.exp : undefined;
  return typeof exp === "number" ? exp * 1000 : Number.POSITIVE_INFINITY;
}
