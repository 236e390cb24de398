import { encodeReply, type ReplyStatus } from "#wire/http-connect";
import type { SelectErrorCode } from "../select/index.ts";

/** The only answer to a CONNECT that succeeded (spec uplink-proxy 5.3). */
export const TUNNEL_OPEN: Uint8Array = Buffer.from("HTTP/1.1 200 OK\r\n\r\n", "latin1");

/** The `X-Uplink-Reason` of an error: what a client or an operator can act upon. */
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
  | "draining";

/** One answer that opens no tunnel. */
export interface Reply {
  readonly status: ReplyStatus;
  readonly reason?: ReplyReason;
  readonly body: string;
  readonly contentType?: string;
  readonly fields?: Readonly<Record<string, string>>;
  /** The connection ends with it. */
  readonly close: boolean;
}

/** An error as all of them look: plain text with its reason in a field. */
export function errorReply(
  status: ReplyStatus,
  reason: ReplyReason,
  text: string,
  options: { readonly close: boolean; readonly fields?: Readonly<Record<string, string>> },
): Reply {
  const fields = { "X-Content-Type-Options": "nosniff", "X-Uplink-Reason": reason, ...options.fields };
  return { status, reason, body: `mgmtproxy: ${text}\n`, fields, close: options.close };
}

/** The bytes of a reply. */
export function encode({ status, body, contentType, fields, close }: Reply): Uint8Array {
  const type = contentType === undefined ? {} : { "Content-Type": contentType };
  return encodeReply(status, body, { close, fields: { ...type, ...fields } });
}
