import { type Refusal, refusal } from "./refusal.ts";

/** One header field. The name's case is kept; the value has no white space around it. */
export interface HeaderField {
  readonly name: string;
  /** Latin-1: each character is one byte. */
  readonly value: string;
}

/** The first line of an HTTP/1.x request (RFC 9112 section 3). */
export interface RequestLine {
  /** Case-sensitive. */
  readonly method: string;
  /** The request-target as it was sent, in any form: printable ASCII without spaces. */
  readonly target: string;
  readonly version: "1.0" | "1.1";
}

/** The head of an HTTP/1.x request (RFC 9112 sections 2 to 6). */
export interface RequestHead extends RequestLine {
  readonly fields: readonly HeaderField[];
  /** True when a body follows the head: a Content-Length above 0, or a Transfer-Encoding. */
  readonly hasBody: boolean;
}

/** The values of all fields of a name, in order. */
export function fieldValues(head: { readonly fields: readonly HeaderField[] }, name: string): string[] {
  return valuesOf(head.fields, name);
}

/** RFC 9110 section 5.6.2. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const TARGET = /^[!-~]+$/;
/** RFC 9110 section 5.5: visible characters, obs-text, spaces and tabs; no control characters. */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

const malformed = (what: string): Refusal => refusal(400, `malformed request: ${what}`);

/** The request line without its CRLF, as Latin-1. */
export function parseRequestLine(line: string): RequestLine | Refusal {
  const first = line.indexOf(" ");
  const second = line.indexOf(" ", first + 1);
  if (second <= first || line.includes(" ", second + 1))
    return malformed("the request line is not METHOD TARGET HTTP/1.1, with one space between each");
  const method = line.slice(0, first);
  const target = line.slice(first + 1, second);
  const protocol = line.slice(second + 1);
  if (!TOKEN.test(method)) return malformed("the method is not a token");
  if (!TARGET.test(target)) return malformed("the target is empty or has bytes that are not printable ASCII");
  if (!/^HTTP\/\d\.\d$/.test(protocol)) return malformed("the request line does not end with an HTTP version");
  if (protocol === "HTTP/1.1") return { method, target, version: "1.1" };
  if (protocol === "HTTP/1.0") return { method, target, version: "1.0" };
  return refusal(505, "only HTTP/1.0 and HTTP/1.1 are supported");
}

/** One field line without its CRLF, as Latin-1. */
export function parseFieldLine(line: string): HeaderField | Refusal {
  if (line.startsWith(" ") || line.startsWith("\t")) return malformed("a header field is folded over several lines");
  const colon = line.indexOf(":");
  if (colon < 0) return malformed("a header field has no colon");
  const name = line.slice(0, colon);
  const value = line.slice(colon + 1);
  if (!TOKEN.test(name)) return malformed("the name of a header field is not a token");
  if (!FIELD_VALUE.test(value)) return malformed("a header field has a control character");
  return { name, value: withoutBlanks(value) };
}

/** Removes white space at both ends. A regular expression for the end would take quadratic time on a run of blanks inside. */
function withoutBlanks(text: string): string {
  const isBlank = (at: number): boolean => text[at] === " " || text[at] === "\t";
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(start)) start += 1;
  while (end > start && isBlank(end - 1)) end -= 1;
  return text.slice(start, end);
}

/**
 * Several Content-Length of one value are one (RFC 9112 section 6.3), whether they are fields or a list: the first field stays, with the value.
 * Others are left as they are, so that they are refused.
 */
export function joinEqualLengths(fields: readonly HeaderField[]): readonly HeaderField[] {
  const isLength = ({ name }: HeaderField): boolean => name.length === 14 && name.toLowerCase() === "content-length";
  const first = fields.find(isLength);
  if (first === undefined) return fields;
  const values = fields.filter(isLength).flatMap(({ value }) => value.split(",").map(withoutBlanks));
  const [value = ""] = values;
  if (values.length === 1 || !values.every((each) => each === value)) return fields;
  return fields.flatMap((field) => (field === first ? [{ ...first, value }] : isLength(field) ? [] : [field]));
}

/** Derives from the fields whether a body follows. Refuses fields that two readers could understand in different ways (RFC 9112 section 6.3). */
export function parseBodyFraming(fields: readonly HeaderField[]): { readonly hasBody: boolean } | Refusal {
  const lengths = valuesOf(fields, "content-length");
  const encodings = valuesOf(fields, "transfer-encoding");
  const [length = "0"] = lengths;
  if (lengths.length > 1) return malformed("it has several Content-Length fields");
  if (!/^\d{1,15}$/.test(length)) return malformed("its Content-Length is not a number");
  if (lengths.length > 0 && encodings.length > 0) return malformed("it has both Content-Length and Transfer-Encoding");
  if (valuesOf(fields, "host").length > 1) return malformed("it has several Host fields");
  return { hasBody: encodings.length > 0 || Number(length) > 0 };
}

/** Compares lengths first: most names differ in length and need no conversion to lower case. */
function valuesOf(fields: readonly HeaderField[], name: string): string[] {
  const wanted = name.toLowerCase();
  const isWanted = (field: HeaderField): boolean =>
    field.name.length === wanted.length && field.name.toLowerCase() === wanted;
  return fields.filter(isWanted).map(({ value }) => value);
}
