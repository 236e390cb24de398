import { encodeReply, type ReplyStatus } from "#wire/http-connect";
import type { SelectErrorCode } from "../select/index.ts";

/** The only answer to a CONNECT that succeeded (docs/spec/uplink-proxy.md#5.3). */
export const TUNNEL_OPEN: Uint8Array = Buffer.from("HTTP/1.1 200 OK\r\n\r\n", "latin1");

/** The `X-Uplink-Reason` of an error: a reason that a client or an operator can act on. */
export type ReplyReason =
  | SelectErrorCode
  | "bad-target"
  | "bad-request"
  | "header-too-large"
  | "header-timeout"
  | "method"
  | "not-found"
  | "auth"
  | "not-loaded"
  | "overload"
  | "bad-answer"
  | "draining";

/** One answer that opens no tunnel. */
export interface Reply {
  readonly status: ReplyStatus;
  readonly reason?: ReplyReason;
  readonly body: string;
  /** The words after the status code, if they are not the usual ones. */
  readonly words?: string;
  readonly contentType?: string;
  readonly fields?: Readonly<Record<string, string>>;
  /** True if the connection is closed after the answer. */
  readonly close: boolean;
}

/** An error answer: plain text, with the reason in a field. */
export function errorReply(
  status: ReplyStatus,
  reason: ReplyReason,
  text: string,
  options: { readonly close: boolean; readonly fields?: Readonly<Record<string, string>> },
): Reply {
  const fields = { "X-Content-Type-Options": "nosniff", "X-Uplink-Reason": reason, ...options.fields };
  return { status, reason, body: `mgmtproxy: ${text}\n`, fields, close: options.close };
}

/** The bytes of a reply; in answer to HEAD only the head, because a body would be read as the next answer (RFC 9110 section 9.3.2). */
export function encode(
  { status, body, words, contentType, fields, close }: Reply,
  options: { readonly isHead?: boolean } = {},
): Uint8Array {
  const type = contentType === undefined ? {} : { "Content-Type": contentType };
  const bytes = encodeReply(status, body, {
    close,
    fields: { ...type, ...fields },
    ...(words === undefined ? {} : { reason: words }),
  });
  return options.isHead === true ? bytes.subarray(0, bytes.length - Buffer.byteLength(body)) : bytes;
}
