import { badRequest } from "../errors.ts";
import { listEntries, numberOf, parseSelection } from "../handlers/list.ts";
import { fromStored } from "../handlers/object-rules.ts";
import type { Deleted, DeleteOptions } from "../handlers/objects.ts";
import { answerReview } from "../handlers/reviews.ts";
import { answerTokenReview } from "../handlers/token-review.ts";
import { asObject } from "../object/json.ts";
import { keyOf } from "../store/entry.ts";
import { parseObjectBody } from "./body.ts";
import {
  answer,
  type Call,
  formOf,
  MAX_BODY_BYTES,
  methodNotAllowed,
  objectBody,
  parseDryRun,
  patchObject,
  writeOptions,
} from "./call.ts";
import { sendList } from "./list-response.ts";
import type { ResourceRequest } from "./request-info.ts";
import { readBody, sendJson } from "./respond.ts";
import { startWatch } from "./start-watch.ts";
import type { ServerState } from "./state.ts";
import { handleSubresource } from "./subresource.ts";

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
  await sendList(call.response, resource, listed, formOf(call), state.clock.now());
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

/** Reads DeleteOptions from the body and the query. The body takes precedence. Throws ApiError. */
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
  // Pods are returned even if they were removed at once, as the real server does.
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
  const options = { ...(await deleteOptions(call)), ofCollection: true };
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
    formOf(call),
    state.clock.now(),
  );
}
