import type { Header } from "../hpack.ts";

/** Characters of a field name in HTTP/2: a token (RFC 9110 section 5.6.2) without upper case (RFC 9113 section 8.2.1). */
const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;
/** A field value has no NUL, CR or LF, and neither begins nor ends with white space (RFC 9113 section 8.2.1). */
const VALUE = /^(?![ \t])[^\0\r\n]*(?<![ \t])$/;
/** RFC 9113 section 8.2.2. */
const OF_CONNECTIONS = new Set(["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]);
const STATUS = /^[1-9][0-9]{2}$/;
const LENGTH = /^[0-9]{1,15}$/;

/** The part of a message that a header block carries. */
export type MessagePart = "request" | "response" | "trailers";

/** The facts of a lawful header block. */
export interface MessageHead {
  /** `:status`; 0 if it is not a response. */
  readonly status: number;
  /** `content-length`; -1 if absent. */
  readonly contentLength: number;
}

/**
 * Checks a header block by the rules of RFC 9113 section 8. Returns the reason as text if it is malformed. What a path or an authority may look
 * like is the user's question.
 */
export function readHead(headers: readonly Header[], part: MessagePart): MessageHead | string {
  let method: string | undefined;
  let scheme: string | undefined;
  let path: string | undefined;
  let authority: string | undefined;
  let status: string | undefined;
  let length: string | undefined;
  let fields = false;
  for (const [name, value] of headers) {
    if (name.charCodeAt(0) === 0x3a) {
      if (fields) return "a pseudo header follows a field";
      const isTwice =
        (name === ":method" && method !== undefined) ||
        (name === ":scheme" && scheme !== undefined) ||
        (name === ":path" && path !== undefined) ||
        (name === ":authority" && authority !== undefined) ||
        (name === ":status" && status !== undefined);
      if (isTwice) return `${name} is there twice`;
      if (part === "response" ? name !== ":status" : part !== "request") return `${quoted(name)} is in a ${part} block`;
      if (name === ":method") method = value;
      else if (name === ":scheme") scheme = value;
      else if (name === ":path") path = value;
      else if (name === ":authority") authority = value;
      else if (name === ":status" && part === "response") status = value;
      else return `the pseudo header ${quoted(name)} is unknown`;
      if (!VALUE.test(value)) return `${name} has forbidden characters`;
      continue;
    }
    fields = true;
    if (!NAME.test(name)) return `the field name ${quoted(name)} has forbidden characters`;
    if (!VALUE.test(value)) return `the field ${name} has forbidden characters`;
    if (OF_CONNECTIONS.has(name)) return `the field ${name} is of a connection`;
    if (name === "te" && value !== "trailers") return `te is ${quoted(value)}`;
    if (name === "content-length" && part !== "trailers") {
      if (!LENGTH.test(value) || (length !== undefined && length !== value))
        return `content-length is ${quoted(value)}`;
      length = value;
    }
  }
  if (part === "request") {
    const isConnect = method === "CONNECT";
    const isComplete = isConnect
      ? authority !== undefined && scheme === undefined && path === undefined
      : method !== undefined && scheme !== undefined && path !== undefined;
    if (!isComplete || method === "" || path === "") return "the pseudo headers of the request are incomplete";
  }
  if (part === "response" && (status === undefined || !STATUS.test(status) || status === "101")) {
    return `:status is ${status === undefined ? "absent" : quoted(status)}`;
  }
  return { status: Number(status ?? 0), contentLength: length === undefined ? -1 : Number(length) };
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 64));
}
