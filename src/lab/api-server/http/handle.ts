import type { IncomingMessage, ServerResponse } from "node:http";
import { describeError } from "#base/errors";
import { ApiError, STATUS_CODES, type StatusReason } from "../errors.ts";
import type { FaultAction, FaultSubject } from "../faults/plan.ts";
import { admit, parseUrl } from "./admit.ts";
import { handleFaults } from "./faults-endpoint.ts";
import { handleMeta } from "./meta-endpoints.ts";
import type { ResourceRequest } from "./request-info.ts";
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
  response.setHeader("audit-id", String(state.random()).slice(2, 14));
  const probed = parseUrl(request.url ?? "/");
  // Probes must work without a token, as the real server's do.
  if (/^\/(healthz|livez|readyz)(\/|$)/.test(probed.pathname)) return handleMeta(state, probed, request, response);
  const { user, url, parsed } = admit(state, request);
  if (parsed === undefined) {
    if (url.pathname === "/lab/faults" && state.faultsOverHttp) return handleFaults(state, url, request, response);
    return handleMeta(state, url, request, response);
  }
  if (parsed.resource.deprecationWarning !== undefined) addWarning(response, parsed.resource.deprecationWarning);
  const fault = state.faults.take(faultSubject(parsed, request));
  const cut = await inject(state, fault, response);
  if (cut === "done") return;
  await handleResource(state, parsed, { url, request, response, user, loseResponse: cut === "lose" });
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

/** A request that waits does not keep the process alive: the server that would answer it may be closed. */
function latency({ clock }: ServerState, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delayMs, resolve, { unref: true });
  });
}

async function inject(
  state: ServerState,
  fault: FaultAction | undefined,
  response: ServerResponse,
): Promise<"go" | "lose" | "done"> {
  if (fault === undefined) return "go";
  if (fault.latencyMs !== undefined) await latency(state, fault.latencyMs);
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
