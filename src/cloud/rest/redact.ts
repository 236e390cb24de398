/** The text that replaces a secret. */
const HIDDEN = "[hidden]";
/** Names of values that no log and no message has (docs/spec/vpc-nics.md#11). */
const SECRET = /password|secret|token|x-auth-token|x-subject-token/i;
/** A word with the name of a secret in it, to its end. */
const NAME = /(?:password|secret|token)[\w-]*/gi;

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

/**
 * A text with what follows the name of a secret replaced: `"password": "text"`, `password=text`, `X-Auth-Token: text`. Each character is read
 * a fixed number of times, whatever the text. Pure.
 */
export function redactText(text: string): string {
  const parts: string[] = [];
  let done = 0;
  for (const { index, 0: name } of text.matchAll(NAME)) {
    // A name inside of a value that is hidden already.
    if (index < done) continue;
    const start = valueStart(text, index + name.length);
    const end = start === undefined ? 0 : valueEnd(text, start);
    if (start === undefined || end === start) continue;
    parts.push(text.slice(done, start), HIDDEN);
    done = end;
  }
  return parts.join("") + text.slice(done);
}

/** The place behind a closing quote, blanks, `:` or `=`, and blanks again; `undefined` if no value follows. */
function valueStart(text: string, nameEnd: number): number | undefined {
  const quoted = text[nameEnd] === '"' || text[nameEnd] === "'" ? nameEnd + 1 : nameEnd;
  const sign = skipBlanks(text, quoted);
  return text[sign] === ":" || text[sign] === "=" ? skipBlanks(text, sign + 1) : undefined;
}

function skipBlanks(text: string, from: number): number {
  let at = from;
  while (at < text.length && /\s/.test(text.charAt(at))) at += 1;
  return at;
}

/** The end of a value: of a quoted one behind its quote, or of the text where that is missing; else ahead of a blank or a sign that ends it. */
function valueEnd(text: string, start: number): number {
  const quote = text[start];
  let at = start;
  if (quote !== '"' && quote !== "'") {
    while (at < text.length && !/[\s,;&}\]]/.test(text.charAt(at))) at += 1;
    return at;
  }
  for (at += 1; at < text.length && text[at] !== quote; at += 1) if (quote === '"' && text[at] === "\\") at += 1;
  return Math.min(at + 1, text.length);
}

/** `auth.identity.password` of Keystone is an object whose own fields are looked at. */
function isStructure(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}
