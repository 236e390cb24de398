import type { ListenerSettings } from "#base/uplink-model";
import { fieldValues, parseHostPort, type Refusal, type RequestHead } from "#wire/http-connect";
import { checkToken, type Destination, destinationOf, isAllowedPort } from "../policy/index.ts";
import type { SelectError } from "../select/index.ts";
import { staysOpen } from "./connection-words.ts";
import type { PlainHttp, PlainTarget } from "./plain-http.ts";
import { errorReply, type Reply } from "./replies.ts";

/** The action for a request. */
export type Action =
  | { readonly kind: "connect"; readonly destination: Destination }
  /** An absolute-form `http://` request that is to be forwarded (docs/spec/uplink-proxy.md#13). */
  | ({ readonly kind: "forward" } & PlainTarget)
  | { readonly kind: "healthz" | "metrics"; readonly close: boolean }
  | { readonly kind: "readyz"; readonly close: boolean; readonly isVerbose: boolean }
  /** `isWrongToken`: the request has credentials, and they are wrong. */
  | { readonly kind: "reply"; readonly reply: Reply; readonly isWrongToken?: boolean };

/** The input of a dispatch. */
export interface DispatchInput {
  readonly listener: ListenerSettings;
  /** The tokens that are accepted now; `undefined` until they are loaded. */
  readonly tokens: readonly string[] | undefined;
  readonly isDraining: boolean;
  readonly metrics: boolean;
  /** The reader of targets, if plain requests are forwarded. */
  readonly plainTargetOf: PlainHttp["targetOf"] | undefined;
}

const RETRY_SOON = { "Retry-After": "5" };

/** The action for a well-formed head (docs/spec/uplink-proxy.md#5.1, #5.2, #9.1). Pure. */
export function dispatch(head: RequestHead, input: DispatchInput): Action {
  if (input.isDraining) {
    return reply(errorReply(503, "draining", "shutting down", { close: true, fields: RETRY_SOON }));
  }
  if (head.method === "CONNECT") return connect(head, input);
  const close = head.hasBody || !staysOpen(head);
  const path = pathOf(head.target);
  if (head.method === "GET" && path === "/healthz") {
    if (input.listener.role !== "pod") return { kind: "healthz", close };
    return reply(errorReply(404, "not-found", "not found", { close }));
  }
  if (input.listener.role !== "pod") {
    if (head.method === "GET" && input.metrics && /^\/metrics(\?|$)/.test(head.target))
      return { kind: "metrics", close };
    if (head.method === "GET" && /^\/readyz(\?|$)/.test(head.target)) {
      return { kind: "readyz", close, isVerbose: /[?&]verbose\b/.test(head.target) };
    }
    const target = input.plainTargetOf?.(head.target);
    if (target !== undefined) return { kind: "forward", ...target };
  } else if (path === "/metrics" || path === "/readyz") {
    return reply(errorReply(404, "not-found", "not found", { close }));
  }
  const refused = errorReply(405, "method", "only CONNECT and GET /healthz are supported", {
    close,
    fields: { Allow: "CONNECT, GET" },
  });
  // apt and other clients show only the status line of an answer.
  const isPlain = input.listener.role !== "pod" && input.plainTargetOf === undefined && /^http:\/\//i.test(head.target);
  return reply(isPlain ? { ...refused, words: "Method Not Allowed (plainHttp is off)" } : refused);
}

/** The answer to bytes that are not an HTTP request, or to a request that is too long: the connection ends with it. */
export function refusalReply({ status, body }: Refusal): Reply {
  if (status === 431) return errorReply(431, "header-too-large", body, { close: true });
  return errorReply(status, "bad-request", body, { close: true });
}

/** The answer to a dial that failed; a pod learns nothing of this host (docs/spec/uplink-proxy.md#5.4). */
export function failureReply(error: SelectError, role: ListenerSettings["role"]): Reply {
  const isPod = role === "pod";
  if (error.code === "denied") {
    return errorReply(403, "denied", isPod ? "destination not allowed" : error.message, { close: false });
  }
  const fields = error.code === "not-ready" ? RETRY_SOON : {};
  return errorReply(502, error.code, isPod ? "upstream connection failed" : error.message, { close: false, fields });
}

/** The answer at the limit of tunnels. */
export function overloadReply(): Reply {
  return errorReply(503, "overload", "too many connections", { close: false, fields: { "Retry-After": "1" } });
}

function connect(head: RequestHead, { listener, tokens }: DispatchInput): Action {
  if (listener.role === "pod" && listener.auth === "token") {
    const credentials = fieldValues(head, "proxy-authorization");
    const verdict = checkToken(credentials, tokens);
    if (verdict === "not-loaded") {
      return reply(errorReply(503, "not-loaded", "not ready", { close: head.hasBody, fields: RETRY_SOON }));
    }
    if (verdict === "denied") {
      const fields = { "Proxy-Authenticate": 'Basic realm="mgmtproxy"' };
      const refused = errorReply(407, "auth", "proxy authentication required", { close: head.hasBody, fields });
      // A client may ask without credentials first, to learn that they are wanted.
      return { ...reply(refused), isWrongToken: credentials.length > 0 };
    }
  }
  const target = parseHostPort(head.target);
  if (target === undefined || head.hasBody) {
    return reply(errorReply(400, "bad-target", "bad CONNECT target", { close: true }));
  }
  const destination = destinationOf(target);
  if (!isAllowedPort(listener, destination.port)) {
    return reply(errorReply(403, "denied", "destination not allowed", { close: false }));
  }
  return { kind: "connect", destination };
}

/** The path of an origin-form or absolute-form target, without its query. */
function pathOf(target: string): string {
  const absolute = /^https?:\/\/[^/?#]*([^?#]*)/i.exec(target);
  return (absolute?.[1] ?? target).replace(/[?#].*$/s, "");
}

function reply(made: Reply): Extract<Action, { kind: "reply" }> {
  return { kind: "reply", reply: made };
}
