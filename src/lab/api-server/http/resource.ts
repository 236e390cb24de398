import type { IncomingMessage, ServerResponse } from "node:http";
import type { UserInfo } from "../auth/auth.ts";
import { ApiError, badRequest } from "../errors.ts";
import { parseFieldValidation } from "../handlers/decode.ts";
import { listEntries, numberOf, parseSelection } from "../handlers/list.ts";
import { fromStored } from "../handlers/object-rules.ts";
import type { Deleted, DeleteOptions, WriteOptions } from "../handlers/objects.ts";
import { PATCH_TYPES, patcher } from "../handlers/patch.ts";
import { answerReview } from "../handlers/reviews.ts";
import { answerTokenReview } from "../handlers/token-review.ts";
import { asObject, isObject, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { keyOf } from "../store/entry.ts";
import { type Form, negotiate } from "./accept.ts";
import { mediaType, parseJson, parseObjectBody, parseYaml } from "./body.ts";
import { sendList } from "./list-response.ts";
import { isTrue, type ResourceRequest } from "./request-info.ts";
import { addWarning, readBody, sendJson, sendObject } from "./respond.ts";
import { startWatch } from "./start-watch.ts";
import type { ServerState } from "./state.ts";
import { handleSubresource } from "./subresource.ts";

/** The bound on request bodies (the real server's). */
export const MAX_BODY_BYTES = 3 * 1024 * 1024;

/** One request on a resource with its surroundings. */
export interface Call {
  readonly url: URL;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly user: UserInfo;
  /** An injected fault: commit, then cut the connection instead of answering. */
  readonly loseResponse: boolean;
}

/** Answers a request on a resource. Throws ApiError. */
export async function handleResource(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, verb, subresource } = parsed;
  if (subresource === "" && !resource.verbs.includes(verb)) throw methodNotAllowed(resource, verb);
  if (subresource !== "") return handleSubresource(state, parsed, call);
  switch (verb) {
    case "get":
      return answer(
        state,
        parsed,
        call,
        200,
        fromStored(resource, state.objects.get(resource, parsed.namespace, parsed.name).object),
      );
    case "list":
      return list(state, parsed, call);
    case "watch":
      return startWatch(state, parsed, call);
    case "create":
      return create(state, parsed, call);
    case "update":
      return update(state, parsed, call);
    case "patch":
      return patch(state, parsed, call);
    case "delete":
      return remove(state, parsed, call);
    case "deletecollection":
      return removeAll(state, parsed, call);
  }
}

/** 405. */
export function methodNotAllowed(resource: ResourceDef, verb: string): ApiError {
  return new ApiError(
    "MethodNotAllowed",
    `the server does not allow this method on the requested resource: ${verb} ${resource.plural}`,
  );
}

function form(call: Call): Form {
  return negotiate(call.request.headers.accept, call.url.searchParams.get("includeObject"));
}

/** Sends one object, unless the response is to be lost. */
export function answer(
  state: ServerState,
  parsed: ResourceRequest,
  call: Call,
  status: number,
  object: KubeObject,
): void {
  if (call.loseResponse) call.response.destroy();
  else sendObject(call.response, status, parsed.resource, object, form(call), state.clock.now());
}

/** Reads what every write has in its query. Throws ApiError. */
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

function parseDryRun(values: readonly string[]): boolean {
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

async function list(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, namespace } = parsed;
  const { searchParams } = call.url;
  const selection = parseSelection(resource, namespace, "", searchParams);
  const listed = listEntries(
    state.store.collection(resource.storage),
    resource,
    selection,
    searchParams,
    state.store.revision,
  );
  await sendList(call.response, resource, listed, form(call), state.clock.now());
}

async function create(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, namespace, name } = parsed;
  if (name !== "") throw methodNotAllowed(resource, "create on a name");
  const body = await objectBody(call);
  if (resource.group === "authentication.k8s.io")
    return sendJson(call.response, 201, answerTokenReview(body, state.reviewedTokens));
  if (resource.group === "authorization.k8s.io")
    return sendJson(call.response, 201, answerReview(resource.kind, body, call.user, state.authorizer));
  if (resource.namespaced && namespace === "") throw badRequest("an empty namespace may not be set during creation");
  if (resource.kind === "Binding" && resource.group === "")
    throw badRequest("create a Binding through pods/NAME/binding");
  const object = await state.objects.create(resource, namespace, body, writeOptions(call, ""));
  answer(state, parsed, call, 201, fromStored(resource, object));
}

async function update(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, namespace, name } = parsed;
  const body = await objectBody(call);
  const object = await state.objects.update(
    resource,
    namespace,
    name,
    () => structuredClone(body),
    writeOptions(call, ""),
  );
  answer(state, parsed, call, 200, fromStored(resource, object));
}

async function patch(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { object, created } = await patchObject(state, parsed, call, "");
  answer(state, parsed, call, created ? 201 : 200, fromStored(parsed.resource, object));
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
    return state.objects.apply(resource, namespace, name, body, { ...options, force });
  }
  if (force) throw badRequest("force: Forbidden: may not be specified for non-apply patch");
  const change = patcher(type, parseJson(bytes), resource, state.registry.definitions);
  return { object: await state.objects.update(resource, namespace, name, change, options), created: false };
}

/** Reads DeleteOptions from the body and the query, which wins nothing: what the body says stays. Throws ApiError. */
export async function deleteOptions(call: Call): Promise<DeleteOptions> {
  const { searchParams } = call.url;
  const bytes = await readBody(call.request, MAX_BODY_BYTES);
  const body = bytes.length === 0 ? {} : parseObjectBody(bytes, call.request.headers["content-type"]);
  const preconditions = asObject(body["preconditions"]);
  const grace =
    body["gracePeriodSeconds"] ??
    (searchParams.has("gracePeriodSeconds") ? numberOf(searchParams, "gracePeriodSeconds") : undefined);
  const policy =
    body["propagationPolicy"] ??
    searchParams.get("propagationPolicy") ??
    (body["orphanDependents"] === true ? "Orphan" : undefined);
  if (policy !== undefined && policy !== "Orphan" && policy !== "Background" && policy !== "Foreground") {
    throw badRequest(
      `propagationPolicy: Unsupported value: ${JSON.stringify(policy)}: supported values: "Foreground", "Background", "Orphan"`,
    );
  }
  if (grace !== undefined && (typeof grace !== "number" || !Number.isInteger(grace) || grace < 0)) {
    throw badRequest(`gracePeriodSeconds: found ${JSON.stringify(grace)}: want a whole number`);
  }
  const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);
  return {
    uid: text(preconditions["uid"]),
    resourceVersion: text(preconditions["resourceVersion"]),
    gracePeriodSeconds: grace,
    propagationPolicy: policy,
    dryRun: parseDryRun([
      ...searchParams.getAll("dryRun"),
      ...(Array.isArray(body["dryRun"]) ? body["dryRun"].map(String) : []),
    ]),
    user: call.user,
  };
}

async function remove(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, namespace, name } = parsed;
  const deleted = await state.objects.delete(resource, namespace, name, await deleteOptions(call));
  sendDeleted(state, parsed, call, deleted);
}

function sendDeleted(state: ServerState, parsed: ResourceRequest, call: Call, deleted: Deleted): void {
  const { resource } = parsed;
  const { object, gone } = deleted;
  // Pods are returned even when they are gone, as the real server does.
  if (!gone || (resource.group === "" && resource.kind === "Pod")) {
    answer(state, parsed, call, 200, fromStored(resource, object));
    return;
  }
  if (call.loseResponse) {
    call.response.destroy();
    return;
  }
  const { name = "", uid = "" } = object.metadata;
  const details = { name, ...(resource.group === "" ? {} : { group: resource.group }), kind: resource.plural, uid };
  sendJson(call.response, 200, { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", details });
}

async function removeAll(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, namespace } = parsed;
  const selection = parseSelection(resource, namespace, "", call.url.searchParams);
  const options = await deleteOptions(call);
  const collection = state.store.collection(resource.storage);
  const { entries } = listEntries(collection, resource, selection, new URLSearchParams(), state.store.revision);
  for (const { object } of entries) {
    const { namespace: where = "", name = "" } = object.metadata;
    if (collection.get(keyOf(where, name)) === undefined) continue;
    await state.objects.delete(resource, where, name, options);
  }
  if (call.loseResponse) {
    call.response.destroy();
    return;
  }
  await sendList(
    call.response,
    resource,
    { entries, listMeta: { resourceVersion: String(state.store.revision) } },
    form(call),
    state.clock.now(),
  );
}
