import { fieldValues, type HeaderField, type RequestHead } from "#wire/http-connect";
import { type BodyFraming, isBodiless, type ResponseHead } from "#wire/http1";
import { connectionWords } from "../front/index.ts";
import type { Destination } from "../policy/index.ts";

/**
 * Fields that concern one hop alone (RFC 9110 section 7.6.1), and those that frame a message, which each hop writes for itself. Fields
 * `Proxy-*` are removed too.
 */
const HOP_BY_HOP: ReadonlySet<string> = new Set(["connection", "keep-alive", "te", "upgrade", "transfer-encoding"]);
/**
 * Fields that `Connection` cannot make hop-by-hop: a sender must not name a field that is meant for all recipients (RFC 9110 section 7.6.1).
 * Without its Content-Length a message would end elsewhere for the next reader (RFC 9112 section 6.3), and without the others a request
 * would be another one, or an answer would be kept for somebody else.
 */
const NEVER_NAMED_AWAY: ReadonlySet<string> = new Set([
  "authorization",
  "cache-control",
  "content-encoding",
  "content-length",
  "content-range",
  "content-type",
  "cookie",
  "expect",
  "host",
  "if-match",
  "if-modified-since",
  "if-none-match",
  "if-range",
  "if-unmodified-since",
  "location",
  "range",
  "set-cookie",
  "vary",
  "www-authenticate",
]);
/**
 * Fields that are not allowed in a trailer (RFC 9110 section 6.5.1): they decide on framing, routing, access, and on what the message means.
 * A recipient that merges trailers into the head would take them for the sender's.
 */
const NOT_IN_TRAILERS: ReadonlySet<string> = new Set([...NEVER_NAMED_AWAY, "trailer"]);

/** The fields that are meant for the other end. `Connection` names further fields that concern only this hop. */
export function endToEnd(fields: readonly HeaderField[]): HeaderField[] {
  const named = connectionWords(fields);
  return fields.filter(({ name }) => {
    const lower = name.toLowerCase();
    if (HOP_BY_HOP.has(lower) || lower.startsWith("proxy-")) return false;
    return !named.has(lower) || NEVER_NAMED_AWAY.has(lower);
  });
}

/** The fields of a trailer that may pass. */
export function trailersToPass(fields: readonly HeaderField[]): HeaderField[] {
  return endToEnd(fields).filter(({ name }) => !NOT_IN_TRAILERS.has(name.toLowerCase()));
}

/** The protocol that a request wants to upgrade to; it must be named in Connection and Upgrade (RFC 9110 section 7.8). */
export function wantedUpgrade(head: RequestHead): string | undefined {
  const [protocols, ...more] = fieldValues(head, "upgrade");
  if (protocols === undefined || more.length > 0 || head.version === "1.0" || head.hasBody) return undefined;
  return connectionWords(head.fields).has("upgrade") ? protocols : undefined;
}

/**
 * The head of a request in origin form, without the fields that concern only the client's connection. The connection to the origin carries
 * only this request.
 */
export function encodeRequestHead(
  head: RequestHead,
  { destination, path }: { readonly destination: Destination; readonly path: string },
  framing: BodyFraming,
): Uint8Array {
  const host = destination.port === 80 ? destination.text.replace(/:80$/, "") : destination.text;
  const upgrade = wantedUpgrade(head);
  const fields = endToEnd(head.fields).filter(({ name }) => name.toLowerCase() !== "host");
  return encodeHead(`${head.method} ${path} HTTP/${head.version}`, [
    { name: "Host", value: host },
    ...fields,
    ...(framing.kind === "chunked" ? [{ name: "Transfer-Encoding", value: "chunked" }] : []),
    ...(upgrade === undefined ? [] : [{ name: "Upgrade", value: upgrade }]),
    { name: "Connection", value: upgrade === undefined ? "close" : "Upgrade" },
  ]);
}

/** The framing of the body of an answer to the client. */
export interface ResponseShape {
  readonly isChunked: boolean;
  /** The connection ends with the body. */
  readonly close: boolean;
}

/** The head of an answer for the client. */
export function encodeResponseHead(head: ResponseHead, { isChunked, close }: ResponseShape): Uint8Array {
  const { status, reason } = head;
  return encodeHead(`HTTP/1.1 ${status} ${reason}`, [
    ...fieldsOfAnswer(head),
    ...(isChunked ? [{ name: "Transfer-Encoding", value: "chunked" }] : []),
    ...(close ? [{ name: "Connection", value: "close" }] : []),
  ]);
}

/** The head of a 101 answer, for a client that requested the upgrade. */
export function encodeSwitch(head: ResponseHead): Uint8Array {
  const upgrade = fieldValues(head, "upgrade").map((value) => ({ name: "Upgrade", value }));
  return encodeHead(`HTTP/1.1 101 ${head.reason}`, [
    ...fieldsOfAnswer(head),
    ...upgrade,
    { name: "Connection", value: "Upgrade" },
  ]);
}

/**
 * A 1xx or 204 response must not have a Content-Length: a client could read it as the length of a body (RFC 9110 section 8.6). Responses to
 * HEAD and 304 responses keep it: there it is the length that the body would have had.
 */
function fieldsOfAnswer({ status, fields }: ResponseHead): HeaderField[] {
  const hasNoLength = isBodiless(status) && status !== 304;
  return endToEnd(fields).filter(({ name }) => !hasNoLength || name.toLowerCase() !== "content-length");
}

function encodeHead(firstLine: string, fields: readonly HeaderField[]): Uint8Array {
  const lines = fields.map(({ name, value }) => `${name}: ${value}\r\n`);
  return Buffer.from(`${firstLine}\r\n${lines.join("")}\r\n`, "latin1");
}
