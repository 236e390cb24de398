import { createHmac, randomBytes } from "node:crypto";
import type { Clock } from "#base/clock";

/** What an API server said of a token. */
export type Verdict = { readonly kind: "accepted" } | { readonly kind: "refused"; readonly why: string };

/** Verdicts are believed for so long, milliseconds (docs/spec/tunnel.md#10). */
const ACCEPTED_MS = 60_000;
const REFUSED_MS = 10_000;
/** Tokens that are remembered; strangers can send any number. */
const MAX_TOKENS = 10_000;

/** Verdicts by token. Tokens themselves are not kept, only what a key of this process makes of them. */
export class TokenCache {
  readonly #clock: Clock;
  readonly #key = randomBytes(32);
  readonly #verdicts = new Map<string, { readonly verdict: Verdict; readonly until: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** What is known of a token and still holds. */
  get(token: string): Verdict | undefined {
    const id = this.#id(token);
    const entry = this.#verdicts.get(id);
    if (entry === undefined) return undefined;
    if (entry.until > this.#clock.now()) return entry.verdict;
    this.#verdicts.delete(id);
    return undefined;
  }

  /** Remembers; an accepted token never beyond its own expiry. */
  set(token: string, verdict: Verdict): void {
    const now = this.#clock.now();
    const until = verdict.kind === "accepted" ? Math.min(now + ACCEPTED_MS, expiryOf(token)) : now + REFUSED_MS;
    const id = this.#id(token);
    this.#verdicts.delete(id);
    this.#verdicts.set(id, { verdict, until });
    // The oldest goes first; a map remembers the order of its entries.
    for (const oldest of this.#verdicts.keys()) {
      if (this.#verdicts.size <= MAX_TOKENS) break;
      this.#verdicts.delete(oldest);
    }
  }

  #id(token: string): string {
    return createHmac("sha256", this.#key).update(token).digest("base64");
  }
}

/**
 * When a JWT says that it expires, milliseconds since the epoch; infinity for a token that is none. Its signature was checked by
 * who accepted it.
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
