import { createHash, timingSafeEqual } from "node:crypto";

/** Maximum length of credentials. Our tokens are shorter. */
const MAX_CREDENTIAL_LENGTH = 1024;

/** The verdict on a request's credentials. `not-loaded`: no token is loaded yet. */
export type TokenVerdict = "ok" | "denied" | "not-loaded";

/**
 * Compares the password of a Basic `Proxy-Authorization` with the accepted tokens; the user name is ignored (spec
 * uplink-proxy 9.1.1). Takes the same time at whatever position they differ.
 */
export function checkToken(values: readonly string[], tokens: readonly string[] | undefined): TokenVerdict {
  if (tokens === undefined || tokens.length === 0) return "not-loaded";
  const [value = ""] = values;
  const password = values.length === 1 ? basicPassword(value) : undefined;
  if (password === undefined) return "denied";
  const digest = sha256(password);
  // No early exit: the number of comparisons must reveal nothing either.
  const matches = tokens.filter((token) => timingSafeEqual(sha256(token), digest));
  return matches.length > 0 ? "ok" : "denied";
}

function basicPassword(value: string): string | undefined {
  if (value.length > MAX_CREDENTIAL_LENGTH) return undefined;
  const match = /^basic +([A-Za-z0-9+/]+={0,2})$/i.exec(value);
  if (match === null) return undefined;
  const decoded = Buffer.from(match[1] ?? "", "base64").toString("latin1");
  const colon = decoded.indexOf(":");
  return colon < 0 ? undefined : decoded.slice(colon + 1);
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text, "latin1").digest();
}
