/** The reply to a successful CONNECT. It has no fields, and must be flushed before any byte of the tunnel (docs/spec/tunnel.md#6). */
export const CONNECTION_ESTABLISHED: Uint8Array = Buffer.from("HTTP/1.1 200 Connection Established\r\n\r\n", "latin1");

/** RFC 9110 section 15. */
const REASONS = {
  200: "OK",
  400: "Bad Request",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  407: "Proxy Authentication Required",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  505: "HTTP Version Not Supported",
} as const;

/** The statuses of replies. */
export type ReplyStatus = keyof typeof REASONS;

/** Options of a reply. */
export interface ReplyOptions {
  /** The reason phrase, for clients that show nothing else of a reply. Default: that of RFC 9110. */
  readonly reason?: string;
  /** `Connection: close`: the connection ends once the reply is flushed. Default true. */
  readonly close?: boolean;
  /** Further fields by name, such as `Retry-After`. A CR, LF or NUL in one is a bug and throws a `TypeError`. */
  readonly fields?: Readonly<Record<string, string>>;
}

/** A complete reply of plain text, with its length. A 405 has the field Allow: CONNECT, unless `fields` has it. */
export function encodeReply(status: ReplyStatus, body: string, options: ReplyOptions = {}): Uint8Array {
  const bytes = Buffer.from(body, "utf8");
  const fields = {
    ...(status === 405 ? { Allow: "CONNECT" } : {}),
    "Content-Type": "text/plain; charset=utf-8",
    "Content-Length": String(bytes.length),
    ...(options.close === false ? {} : { Connection: "close" }),
    ...options.fields,
  };
  const lines = Object.entries(fields).map(([name, value]) => fieldLine(name, value));
  const head = `${statusLine(status, options.reason ?? REASONS[status])}${lines.join("")}\r\n`;
  return Buffer.concat([Buffer.from(head, "latin1"), bytes]);
}

/** The status for the error text of a failed dial; the first match counts (docs/spec/tunnel.md#6). */
export function statusOfDialError(text: string): 502 | 503 | 504 {
  const lower = text.toLowerCase();
  if (lower.includes("timeout") || lower.includes("deadline exceeded")) return 504;
  return lower.includes("too many open files") ? 503 : 502;
}

function statusLine(status: ReplyStatus, reason: string): string {
  if (/[\r\n\0]/.test(reason)) throw new TypeError(`the reason ${JSON.stringify(reason)} has a line's end in it`);
  return `HTTP/1.1 ${status} ${reason}\r\n`;
}

function fieldLine(name: string, value: string): string {
  if (/[\r\n\0]/.test(name + value))
    throw new TypeError(`a reply field ${JSON.stringify(name)} has a line's end in it`);
  return `${name}: ${value}\r\n`;
}
