import { STATUS_CODES } from "node:http";
import { fieldValues, type RequestHead } from "#wire/http-connect";

/** A request: its body, if it has one, is not read. */
export interface EndpointRequest {
  readonly method: string;
  /** The path of the target, as it was sent: not decoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** The Host field; empty if there is none. */
  readonly host: string;
  /** All values of the Authorization field. */
  readonly authorization: readonly string[];
  /** The client's address; `undefined` on a UNIX socket. */
  readonly from: string | undefined;
  /** The address that the client connected to. */
  readonly to: string | undefined;
  /** Aborts when the client has ended its side or is gone, and when the answer is out. */
  readonly signal: AbortSignal;
}

/** An answer. Of a HEAD request the body is left out. */
export interface EndpointAnswer {
  /** Default 200. */
  readonly status?: number | undefined;
  /** Default `text/plain; charset=utf-8`. */
  readonly type?: string | undefined;
  /** Further fields; `connection: close` ends the connection after the answer. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body: string | Uint8Array | AsyncIterable<Uint8Array>;
}

const TEXT = "text/plain; charset=utf-8";

/** An answer to what is no request that can be served. */
export function errorAnswer(status: number, body: string): EndpointAnswer {
  return { status, body: `${body}\n`, headers: { connection: "close" } };
}

/** Returns the request without its signal. A client behind a proxy sends an absolute target, which servers must accept (RFC 9112 3.2.2). Pure. */
export function requestOf(
  head: RequestHead,
  { from, to }: Pick<EndpointRequest, "from" | "to">,
): Omit<EndpointRequest, "signal"> {
  const target = head.target.replace(/^https?:\/\/[^/?]*/i, "");
  const at = target.indexOf("?");
  const path = at < 0 ? target : target.slice(0, at);
  return {
    ...{ method: head.method, path: path === "" ? "/" : path, from, to },
    query: new URLSearchParams(at < 0 ? "" : target.slice(at + 1)),
    host: fieldValues(head, "host")[0] ?? "",
    authorization: fieldValues(head, "authorization"),
  };
}

/** True if the connection may serve another request (RFC 9112 9.3). Where a body follows, the bytes after the head are no request. Pure. */
export function isPersistent(head: RequestHead): boolean {
  if (head.hasBody) return false;
  const options = fieldValues(head, "connection").join(",").toLowerCase();
  const has = (option: string): boolean => options.split(",").some((one) => one.trim() === option);
  return head.version === "1.1" ? !has("close") : has("keep-alive");
}

/** The way in which the end of an answer's body is told. */
export type AnswerFraming = "length" | "chunked" | "close";

/** The head of an answer. `length`: of the body, if it is known. Pure. */
export function encodeHead(
  { status = 200, type = TEXT, headers = {} }: Omit<EndpointAnswer, "body">,
  { framing, length, isPersistent: stays, date }: HeadOptions,
): string {
  const fields: Record<string, string> = {
    date: date.toUTCString(),
    "content-type": type,
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    ...headers,
    ...(framing === "length" ? { "content-length": String(length) } : {}),
    ...(framing === "chunked" ? { "transfer-encoding": "chunked" } : {}),
    connection: stays ? "keep-alive" : "close",
  };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
  return `${[`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`, ...lines].join("\r\n")}\r\n\r\n`;
}

interface HeadOptions {
  readonly framing: AnswerFraming;
  readonly length?: number;
  readonly isPersistent: boolean;
  readonly date: Date;
}
