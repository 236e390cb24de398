import type { IncomingMessage, ServerResponse } from "node:http";
import type { UserInfo } from "../auth/auth.ts";
import { ApiError, badRequest } from "../errors.ts";
import { parseFieldValidation } from "../handlers/decode.ts";
import type { WriteOptions } from "../handlers/objects.ts";
import { PATCH_TYPES, patcher } from "../handlers/patch.ts";
import { isObject, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { type Form, negotiate } from "./accept.ts";
import { requireRight } from "./admit.ts";
import { mediaType, parseJson, parseObjectBody, parseYaml } from "./body.ts";
import { isTrue, type ResourceRequest } from "./request-info.ts";
import { addWarning, readBody, sendObject } from "./respond.ts";
import type { ServerState } from "./state.ts";

/** The bound on request bodies (the real server's). */
export const MAX_BODY_BYTES = 3 * 1024 * 1024;

/** One request on a resource with its surroundings. */
export interface Call {
  readonly url: URL;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly user: UserInfo;
  /** An injected fault: commit, then close the connection without an answer. */
  readonly loseResponse: boolean;
}

/** An error with status 405. */
export function methodNotAllowed(resource: ResourceDef, verb: string): ApiError {
  return new ApiError(
    "MethodNotAllowed",
    `the server does not allow this method on the requested resource: ${verb} ${resource.plural}`,
  );
}

/** The form that the client wants for the response. */
export function formOf(call: Call): Form {
  return negotiate(call.request.headers.accept, call.url.searchParams.get("includeObject"));
}

/** Sends one object, unless a fault drops the response. */
export function answer(
  state: ServerState,
  parsed: ResourceRequest,
  call: Call,
  status: number,
  object: KubeObject,
): void {
  if (call.loseResponse) call.response.destroy();
  else sendObject(call.response, status, parsed.resource, object, formOf(call), state.clock.now());
}

/** Reads the query parameters of every write. Throws ApiError. */
export function writeOptions(call: Call, subresource: string): WriteOptions {
  const { searchParams } = call.url;
  const manager =
    searchParams.get("fieldManager") ?? (call.request.headers["user-agent"] ?? "unknown").split("/")[0] ?? "unknown";
  if (manager.length > 128) throw badRequest("fieldManager: Too long: must have at most 128 bytes");
  return {
    user: call.user,
    manager,
    dryRun: parseDryRun(searchParams.getAll("dryRun")),
    fieldValidation: parseFieldValidation(searchParams.get("fieldValidation")),
    subresource,
    warn: (text) => addWarning(call.response, text),
  };
}

/** Throws ApiError for a value that is not `All`. */
export function parseDryRun(values: readonly string[]): boolean {
  for (const value of values)
    if (value !== "All" && value !== "")
      throw badRequest(`dryRun: Unsupported value: ${JSON.stringify(value)}: supported values: "All"`);
  return values.includes("All");
}

/** Reads the body as an object. Throws ApiError. */
export async function objectBody(call: Call): Promise<JsonObject> {
  const bytes = await readBody(call.request, MAX_BODY_BYTES);
  return parseObjectBody(bytes, call.request.headers["content-type"]);
}

/** Applies a patch of any type to an object or one of its subresources. Throws ApiError. */
export async function patchObject(
  state: ServerState,
  parsed: ResourceRequest,
  call: Call,
  subresource: string,
): Promise<{ object: KubeObject; created: boolean }> {
  const { resource, namespace, name } = parsed;
  const type = mediaType(call.request.headers["content-type"]);
  const bytes = await readBody(call.request, MAX_BODY_BYTES);
  const options = writeOptions(call, subresource);
  const force = isTrue(call.url.searchParams.get("force"));
  if (type === PATCH_TYPES.apply) {
    if (call.url.searchParams.get("fieldManager") === null)
      throw badRequest("fieldManager is required for apply patch");
    const body = parseYaml(bytes);
    if (!isObject(body)) throw badRequest("error decoding YAML: want an object");
    // Who creates an object by applying it needs both rights (apiserver pkg/endpoints/handlers/patch.go).
    if (subresource === "" && state.objects.find(resource, namespace, name) === undefined)
      requireRight(state, call.request, call.user, {
        verb: "create",
        group: resource.group,
        version: resource.version,
        resource: resource.plural,
        subresource,
        namespace,
        name,
      });
    return state.objects.apply(resource, namespace, name, body, { ...options, force });
  }
  if (force) throw badRequest("force: Forbidden: may not be specified for non-apply patch");
  const change = patcher(type, parseJson(bytes), resource, state.registry.definitions);
  return { object: await state.objects.update(resource, namespace, name, change, options), created: false };
}
