import type { IncomingMessage, ServerResponse } from "node:http";
import { sleep } from "#base/async";
import { describeError } from "#base/errors";
import { type UserInfo, unauthorized } from "../auth/auth.ts";
import { ApiError, forbidden, noSuchResource, STATUS_CODES, type StatusReason } from "../errors.ts";
import type { FaultAction, FaultSubject } from "../faults/plan.ts";
import { handleFaults } from "./faults-endpoint.ts";
import { handleMeta } from "./meta-endpoints.ts";
import { parseResourceRequest, type ResourceRequest } from "./request-info.ts";
import { handleResource } from "./resource.ts";
import { addWarning, sendError } from "./respond.ts";
import type { ServerState } from "./state.ts";

/** Answers one request; never throws. */
export async function handle(state: ServerState, request: IncomingMessage, response: ServerResponse): Promise<void> {
  try {
    await route(state, request, response);
  } catch (error) {
    if (error instanceof ApiError) return sendError(response, error);
    state.log.error("request failed: this is a bug in the API server", {
      method: request.method,
      url: request.url,
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
    sendError(response, new ApiError("InternalError", `Internal error occurred: ${describeError(error)}`));
  }
}

async function route(state: ServerState, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = parseUrl(request.url ?? "/");
  response.setHeader("audit-id", String(state.random()).slice(2, 14));
  // Probes must work without a token, as the real server's do.
  if (/^\/(healthz|livez|readyz)(\/|$)/.test(url.pathname)) return handleMeta(state, url, request, response);
  const user = state.authenticator.authenticate(request.headers);
  if (user === undefined) throw unauthorized();
  if (url.pathname === "/lab/faults" && state.faultsOverHttp) return handleFaults(state, url, request, response);
  const parsed = parseResourceRequest(request.method ?? "GET", url, state.registry);
  if (parsed === undefined) {
    allow(state, user, url, undefined, request);
    return handleMeta(state, url, request, response);
  }
  allow(state, user, url, parsed, request);
  if (parsed.resource.deprecationWarning !== undefined) addWarning(response, parsed.resource.deprecationWarning);
  const fault = state.faults.take(faultSubject(parsed, request));
  const cut = await inject(state, fault, response);
  if (cut === "done") return;
  await handleResource(state, parsed, { url, request, response, user, loseResponse: cut === "lose" });
}

function parseUrl(text: string): URL {
  const url = URL.parse(text, "http://server");
  if (url === null) throw noSuchResource();
  return url;
}

function allow(
  state: ServerState,
  user: UserInfo,
  url: URL,
  parsed: ResourceRequest | undefined,
  request: IncomingMessage,
): void {
  const base = {
    version: parsed?.resource.version ?? "",
    subresource: parsed?.subresource ?? "",
    namespace: parsed?.namespace ?? "",
    name: parsed?.name ?? "",
  };
  const { allowed, reason } = state.authorizer.authorize(user, {
    ...base,
    verb: parsed?.verb ?? (request.method ?? "get").toLowerCase(),
    group: parsed?.resource.group ?? "",
    resource: parsed?.resource.plural ?? "",
    ...(parsed === undefined ? { nonResourcePath: url.pathname } : {}),
  });
  if (allowed) return;
  if (parsed === undefined)
    throw new ApiError(
      "Forbidden",
      `User ${JSON.stringify(user.name)} cannot ${request.method} path ${JSON.stringify(url.pathname)}: ${reason}`,
    );
  throw forbidden(
    parsed.resource,
    parsed.name,
    `User ${JSON.stringify(user.name)} cannot ${parsed.verb} resource ${JSON.stringify(parsed.resource.plural)}: ${reason}`,
  );
}

function faultSubject(parsed: ResourceRequest, request: IncomingMessage): FaultSubject {
  return {
    verb: parsed.verb,
    group: parsed.resource.group,
    resource: parsed.resource.plural,
    subresource: parsed.subresource,
    namespace: parsed.namespace,
    name: parsed.name,
    userAgent: request.headers["user-agent"] ?? "",
  };
}

const FAULT_REASONS: Readonly<Record<NonNullable<FaultAction["status"]>, StatusReason>> = {
  409: "Conflict",
  410: "Expired",
  429: "TooManyRequests",
  500: "InternalError",
  502: "ServiceUnavailable",
  503: "ServiceUnavailable",
  504: "Timeout",
};

async function inject(
  state: ServerState,
  fault: FaultAction | undefined,
  response: ServerResponse,
): Promise<"go" | "lose" | "done"> {
  if (fault === undefined) return "go";
  if (fault.latencyMs !== undefined) await sleep(fault.latencyMs, { clock: state.clock });
  if (fault.cut === "drop-connection") {
    response.destroy();
    return "done";
  }
  if (fault.status !== undefined) {
    const retryAfterSeconds = fault.status === 429 || fault.status === 503 ? (fault.retryAfterSeconds ?? 1) : undefined;
    const reason = FAULT_REASONS[fault.status];
    const error = new ApiError(
      reason,
      `injected fault: ${STATUS_CODES[reason]} ${reason}`,
      retryAfterSeconds === undefined ? {} : { details: { retryAfterSeconds } },
    );
    sendError(response, error);
    return "done";
  }
  return fault.cut === "lost-response" ? "lose" : "go";
}
