/** Maximum of names of a certificate that are read, and of their characters: OpenSSL takes certificates of 100 KiB. */
const MAX_NAMES = 64;
const MAX_NAME_LENGTH = 512;

/** The names in a client certificate that was verified. */
export interface CertificateNames {
  /** Several, or none, are not forbidden by X.509. */
  readonly commonNames: readonly string[];
  readonly organizations: readonly string[];
  /** Subject alternative names of the types DNS and URI, such as SPIFFE ids. */
  readonly dnsNames: readonly string[];
  readonly uris: readonly string[];
}

/** The fields of `tls.PeerCertificate` that are read; Node gives a list where a certificate has a field of its subject several times. */
export interface PeerCertificateFields {
  readonly subject?: unknown;
  readonly subjectaltname?: unknown;
}

/**
 * Reads the names of Node's description of a certificate. Pure. Names with control characters, or longer than 512 characters, are left out; so are
 * all alternative names if their list is malformed, or has more than 64.
 */
export function certificateNames({ subject, subjectaltname }: PeerCertificateFields): CertificateNames {
  const alternatives = typeof subjectaltname === "string" ? alternativeNames(subjectaltname) : [];
  const ofType = (type: string): string[] =>
    alternatives.flatMap((one) => (one.type === type ? usable(one.value) : []));
  return {
    commonNames: fieldOf(subject, "CN"),
    organizations: fieldOf(subject, "O"),
    dnsNames: ofType("DNS"),
    uris: ofType("URI"),
  };
}

function fieldOf(subject: unknown, key: string): string[] {
  if (typeof subject !== "object" || subject === null || !Object.hasOwn(subject, key)) return [];
  const value: unknown = Reflect.get(subject, key);
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  // Of a longer list none counts: that one of many was left out must not make a rule match.
  return values.length > MAX_NAMES ? [] : values.flatMap(usable);
}

function usable(value: unknown): string[] {
  if (typeof value !== "string" || value === "" || value.length > MAX_NAME_LENGTH) return [];
  for (let at = 0; at < value.length; at += 1) {
    const code = value.charCodeAt(at);
    if (code < 32 || code === 127) return [];
  }
  return [value];
}

/**
 * Reads Node's list of alternative names: `DNS:a.example, URI:spiffe://b/c`. A value with a comma, a quote or other characters that could be
 * mistaken is a JSON string there.
 */
function alternativeNames(text: string): { readonly type: string; readonly value: string }[] {
  const names: { readonly type: string; readonly value: string }[] = [];
  for (let at = 0; at < text.length; ) {
    const colon = text.indexOf(":", at);
    if (colon < 0 || names.length === MAX_NAMES) return [];
    const type = text.slice(at, colon);
    const isQuoted = text[colon + 1] === '"';
    const end = isQuoted ? endOfQuoted(text, colon + 1) : endOfPlain(text, colon + 1);
    const value = isQuoted ? unquote(text.slice(colon + 1, end)) : text.slice(colon + 1, end);
    if (value === undefined || !(end === text.length || text.startsWith(", ", end))) return [];
    names.push({ type, value });
    at = end + 2;
  }
  return names;
}

function endOfPlain(text: string, from: number): number {
  const end = text.indexOf(", ", from);
  return end < 0 ? text.length : end;
}

/** The place behind the closing quote; the end of the text if there is none. */
function endOfQuoted(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

function unquote(text: string): string | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? value : undefined;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return undefined;
  }
}
