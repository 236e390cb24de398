import type { IncomingMessage, ServerResponse } from "node:http";
import { ApiError, badRequest } from "../errors.ts";
import type { FaultAction, FaultMatch, FaultRule } from "../faults/plan.ts";
import { isObject, type Json, type JsonObject } from "../object/json.ts";
import { parseJson } from "./body.ts";
import { readBody, sendJson } from "./respond.ts";
import type { ServerState } from "./state.ts";

const BODY_LIMIT = 64 * 1024;

/**
 * `/lab/faults`: GET lists the rules; POST `{match, action}` adds one; POST `{watches: "drop"|"expire", match}` ends watches;
 * POST `{compact: true}` forgets history; DELETE removes all rules, or that of `?id=`.
 */
export async function handleFaults(
  state: ServerState,
  url: URL,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { faults } = state;
  if (request.method === "DELETE") {
    const id = url.searchParams.get("id");
    if (id === null) faults.clear();
    else if (!faults.remove(Number(id))) throw new ApiError("NotFound", `no fault rule has the id ${id}`);
  } else if (request.method === "POST") {
    const body = parseJson(await readBody(request, BODY_LIMIT));
    if (!isObject(body)) throw badRequest("a fault must be an object");
    return sendJson(response, 200, act(state, body));
  } else if (request.method !== "GET") {
    throw new ApiError(
      "MethodNotAllowed",
      `${request.method} is not supported on /lab/faults: want GET, POST or DELETE`,
    );
  }
  sendJson(response, 200, { rules: faults.list() as unknown as Json });
}

function act(state: ServerState, body: JsonObject): JsonObject {
  const match = parseMatch(body["match"]);
  if (body["compact"] === true) {
    state.store.compact();
    return { compacted: state.store.revision };
  }
  if (body["watches"] === "drop") return { watches: state.faults.dropWatches(match) };
  if (body["watches"] === "expire") return { watches: state.faults.expireWatches(match) };
  return { id: state.faults.add(parseRule(body, match)) };
}

const TEXTS = ["group", "resource", "subresource", "namespace", "name", "userAgent"] as const;
const STATUSES = [409, 410, 429, 500, 502, 503, 504] as const;

/** Reads the condition of a rule. Throws ApiError `BadRequest` naming the member that is wrong. */
export function parseMatch(value: Json | undefined): FaultMatch {
  if (value === undefined) return {};
  if (!isObject(value)) throw badRequest("match must be an object");
  const match: { -readonly [K in keyof FaultMatch]: FaultMatch[K] } = {};
  for (const [key, member] of Object.entries(value)) {
    const text = TEXTS.find((known) => known === key);
    if (text !== undefined && typeof member === "string") match[text] = member;
    else if (key === "verb" && typeof member === "string") match.verb = member;
    else if (key === "verb" && Array.isArray(member)) match.verb = member.map(String);
    else if (key === "probability" && typeof member === "number" && member >= 0 && member <= 1)
      match.probability = member;
    else if (key === "times" && typeof member === "number" && Number.isInteger(member) && member > 0)
      match.times = member;
    else
      throw badRequest(
        `match.${key}: found ${JSON.stringify(member)}; known are verb, ${TEXTS.join(", ")}, probability (0 to 1), times (from 1)`,
      );
  }
  return match;
}

function parseRule(body: JsonObject, match: FaultMatch): FaultRule {
  const wanted = body["action"];
  if (!isObject(wanted)) throw badRequest("action must be an object with latencyMs, status or cut");
  const action: { -readonly [K in keyof FaultAction]: FaultAction[K] } = {};
  for (const [key, member] of Object.entries(wanted)) {
    const status = STATUSES.find((known) => known === member);
    if ((key === "latencyMs" || key === "retryAfterSeconds") && typeof member === "number" && member >= 0)
      action[key] = member;
    else if (key === "status" && status !== undefined) action.status = status;
    else if (key === "cut" && (member === "drop-connection" || member === "lost-response")) action.cut = member;
    else
      throw badRequest(
        `action.${key}: found ${JSON.stringify(member)}; known are latencyMs, retryAfterSeconds, status (${STATUSES.join(", ")}), cut (drop-connection, lost-response)`,
      );
  }
  return { match, action };
}
