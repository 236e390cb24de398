import { fieldValues, type HeaderField, type RequestHead } from "#wire/http-connect";

/** The way the end of a message's body is found (RFC 9112 section 6.3). */
export type BodyFraming =
  | { readonly kind: "none" }
  | { readonly kind: "length"; readonly bytes: number }
  | { readonly kind: "chunked" }
  /** The body ends with the connection; only responses. */
  | { readonly kind: "close" };

/** A message that is invalid, or that two readers could understand in different ways. */
export interface Malformed {
  readonly kind: "malformed";
  /** Part of a sentence, without bytes of the message. */
  readonly what: string;
}

/** The head of an HTTP/1.x response (RFC 9112 section 4). */
export interface ResponseHead {
  readonly version: "1.0" | "1.1";
  /** 100 to 599. */
  readonly status: number;
  /** Perhaps empty. */
  readonly reason: string;
  readonly fields: readonly HeaderField[];
}

/** Makes a {@link Malformed}. */
export function malformed(what: string): Malformed {
  return { kind: "malformed", what };
}

const NONE: BodyFraming = { kind: "none" };
const CHUNKED: BodyFraming = { kind: "chunked" };
const CLOSE: BodyFraming = { kind: "close" };

/** The framing of a request's body. Ambiguous framing is refused (RFC 9112 sections 6.1 and 11.2). */
export function requestFraming(head: RequestHead): BodyFraming | Malformed {
  return lengthOf(head) ?? NONE;
}

/** The framing of the body of a final response to a request with that method. */
export function responseFraming(head: ResponseHead, requestMethod: string): BodyFraming | Malformed {
  if (requestMethod === "HEAD" || isBodiless(head.status)) {
    // Two readers could also disagree about a length of a message that has no body.
    const lengths = fieldValues(head, "content-length");
    return lengths.length > 1 || !lengths.every(isLength) ? BAD_LENGTH : NONE;
  }
  return lengthOf(head) ?? CLOSE;
}

/** Responses that never have a body (RFC 9110 sections 15.2, 15.3.5 and 15.4.5). */
export function isBodiless(status: number): boolean {
  return status < 200 || status === 204 || status === 304;
}

/** `undefined` if there is neither Content-Length nor Transfer-Encoding. */
function lengthOf(head: Pick<ResponseHead, "version" | "fields">): BodyFraming | Malformed | undefined {
  const encodings = fieldValues(head, "transfer-encoding");
  const lengths = fieldValues(head, "content-length");
  if (encodings.length > 0) {
    if (lengths.length > 0) return malformed("it has both Content-Length and Transfer-Encoding");
    if (head.version === "1.0") return malformed("it is of HTTP/1.0 and has a Transfer-Encoding");
    if (encodings.length > 1 || encodings[0]?.toLowerCase() !== "chunked") {
      return malformed("its Transfer-Encoding has codings other than chunked");
    }
    return CHUNKED;
  }
  const [length] = lengths;
  if (length === undefined) return undefined;
  if (lengths.length > 1 || !isLength(length)) return BAD_LENGTH;
  return { kind: "length", bytes: Number(length) };
}

const BAD_LENGTH = malformed("its Content-Length is not one number");

/** At most fifteen digits, which a number holds exactly. */
function isLength(text: string): boolean {
  return /^\d{1,15}$/.test(text);
}
