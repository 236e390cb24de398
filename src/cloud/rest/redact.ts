/** What stands in the place of a secret. */
const HIDDEN = "[hidden]";
/** Names of values that no log and no message has (docs/spec/vpc-nics.md#11). */
const SECRET = /password|secret|token|x-auth-token|x-subject-token/i;
/** `"password": "text"`, `password=text`, `X-Auth-Token: text`, in any text. */
const IN_TEXT =
  /((?:["']?)[\w-]*(?:password|secret|token)[\w-]*["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&}\]]+)/gi;

/** The value with every field that may be a secret replaced, at any depth up to 16. Pure. */
export function redact(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return redactText(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth >= 16) return HIDDEN;
  if (Array.isArray(value)) return value.map((one) => redact(one, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [
      key,
      SECRET.test(key) && !isStructure(one) ? HIDDEN : redact(one, depth + 1),
    ]),
  );
}

/** A text with what follows the name of a secret replaced. Pure. */
export function redactText(text: string): string {
  return text.replaceAll(IN_TEXT, (_whole, name: string) => `${name}${HIDDEN}`);
}

/** `auth.identity.password` of Keystone is an object whose own fields are looked at. */
function isStructure(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}
