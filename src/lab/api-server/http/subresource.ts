import { ApiError, badRequest, noSuchResource } from "../errors.ts";
import { fromStored } from "../handlers/object-rules.ts";
import { PATCH_TYPES, patcher } from "../handlers/patch.ts";
import { bindPod, checkDisruptionBudgets } from "../handlers/pods.ts";
import { toScale, withScale } from "../handlers/scale.ts";
import { asArray, asObject, at, clone, isObject, withPath } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ScalePaths } from "../resources/types.ts";
import { ANYTHING } from "../schema/index.ts";
import { negotiate } from "./accept.ts";
import { mediaType, parseJson, parseYaml } from "./body.ts";
import { answer, type Call, MAX_BODY_BYTES, methodNotAllowed, objectBody, patchObject, writeOptions } from "./call.ts";
import { proxyToPod } from "./pod-proxy.ts";
import type { ResourceRequest } from "./request-info.ts";
import { readBody, sendJson, sendObject } from "./respond.ts";
import type { ServerState } from "./state.ts";
import { notReached } from "./upgrade.ts";

/** Answers a request on a subresource. Throws ApiError. */
export async function handleSubresource(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, subresource } = parsed;
  const core = resource.group === "" ? resource.kind : "";
  if (subresource === "status" && resource.hasStatus) return handleStatus(state, parsed, call);
  if (subresource === "scale" && resource.scale !== undefined) return handleScale(state, parsed, call, resource.scale);
  if (core === "Pod" && subresource === "binding") return bind(state, parsed, call);
  if (core === "Pod" && subresource === "eviction") return evict(state, parsed, call);
  if (core === "Pod" && subresource === "proxy") return proxyToPod(state, parsed, call);
  if (core === "Namespace" && subresource === "finalize") return finalize(state, parsed, call);
  if (core === "Pod" && ["log", "exec", "attach", "portforward"].includes(subresource)) {
    state.objects.get(resource, parsed.namespace, parsed.name);
    if (subresource === "exec")
      throw state.kubelets === undefined ? notReached() : badRequest("Upgrade request required");
    throw new ApiError(
      "NotImplemented",
      `pods/${subresource} is not served: of the subresources that need a kubelet, the lab's API server has only pods/exec and pods/proxy`,
    );
  }
  throw noSuchResource();
}

async function handleStatus(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, verb, namespace, name } = parsed;
  if (verb === "get")
    return answer(state, parsed, call, 200, fromStored(resource, state.objects.get(resource, namespace, name).object));
  if (verb === "patch") {
    const { object } = await patchObject(state, parsed, call, "status");
    return answer(state, parsed, call, 200, fromStored(resource, object));
  }
  if (verb !== "update") throw methodNotAllowed(resource, verb);
  const body = await objectBody(call);
  const object = await state.objects.update(resource, namespace, name, () => clone(body), writeOptions(call, "status"));
  answer(state, parsed, call, 200, fromStored(resource, object));
}

async function handleScale(state: ServerState, parsed: ResourceRequest, call: Call, paths: ScalePaths): Promise<void> {
  const { resource, verb, namespace, name } = parsed;
  const send = (object: KubeObject): void => {
    if (call.loseResponse) call.response.destroy();
    else sendObject(call.response, 200, resource, toScale(object, paths), scaleForm(call), state.clock.now());
  };
  if (verb === "get") return send(state.objects.get(resource, namespace, name).object);
  if (verb !== "update" && verb !== "patch") throw methodNotAllowed(resource, verb);
  const change = verb === "update" ? await scaleUpdate(call) : await scalePatch(state, call);
  const updated = await state.objects.update(
    resource,
    namespace,
    name,
    (current) => clone(withScale(current, change(toScale(current, paths)), resource, paths)),
    writeOptions(call, "scale"),
  );
  send(updated);
}

/** A Scale has no columns: a request for a Table gets the object. */
function scaleForm(call: Call): ReturnType<typeof negotiate> {
  const form = negotiate(call.request.headers.accept, null);
  return form.as === "object" ? form : { as: "object", yaml: false };
}

async function scaleUpdate(call: Call): Promise<(scale: KubeObject) => KubeObject> {
  const body = await objectBody(call);
  return () => body as KubeObject;
}

async function scalePatch(state: ServerState, call: Call): Promise<(scale: KubeObject) => KubeObject> {
  const type = mediaType(call.request.headers["content-type"]);
  const bytes = await readBody(call.request, MAX_BODY_BYTES);
  const apply = type === PATCH_TYPES.apply;
  const patch = apply ? parseYaml(bytes) : parseJson(bytes);
  if (apply && isObject(patch)) return (scale) => ({ ...scale, spec: asObject(patch["spec"]) });
  // A Scale has no lists to merge, so the schema does not matter.
  const plain = { plural: "scales", custom: false, schema: ANYTHING };
  return (scale) => {
    const resource = state.registry.list().find((known) => known.scale !== undefined);
    if (resource === undefined) throw noSuchResource();
    return patcher(type, patch, { ...resource, ...plain }, state.registry.definitions)(scale) as KubeObject;
  };
}

async function bind(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, verb, namespace, name } = parsed;
  if (verb !== "create") throw methodNotAllowed(resource, verb);
  const body = await objectBody(call);
  const options = writeOptions(call, "binding");
  if (asObject(body["metadata"])["name"] !== undefined && at(body, "metadata", "name") !== name)
    throw badRequest("name in URL does not match name in Binding object");
  const bound = bindPod(resource, state.objects.get(resource, namespace, name).object, body, state.clock.now());
  if (!options.dryRun) state.objects.writeInternal(resource, bound);
  if (call.loseResponse) call.response.destroy();
  else sendJson(call.response, 201, { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", code: 201 });
}

async function evict(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, verb, namespace, name } = parsed;
  if (verb !== "create") throw methodNotAllowed(resource, verb);
  const body = await objectBody(call);
  const options = asObject(body["deleteOptions"]);
  const pod = state.objects.get(resource, namespace, name).object;
  const phase = at(pod, "status", "phase");
  if (phase !== "Succeeded" && phase !== "Failed" && phase !== "Pending") checkDisruptionBudgets(state.store, pod);
  const grace = options["gracePeriodSeconds"];
  const uid = at(options, "preconditions", "uid");
  await state.objects.delete(resource, namespace, name, {
    user: call.user,
    gracePeriodSeconds: typeof grace === "number" ? grace : undefined,
    uid: typeof uid === "string" ? uid : undefined,
    dryRun: asArray(options["dryRun"]).includes("All"),
  });
  if (call.loseResponse) call.response.destroy();
  else sendJson(call.response, 201, { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", code: 201 });
}

async function finalize(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  const { resource, verb, name } = parsed;
  if (verb !== "update") throw methodNotAllowed(resource, verb);
  const body = await objectBody(call);
  const current = state.objects.get(resource, "", name).object;
  const finalizers = asArray(at(body, "spec", "finalizers"));
  const next = withPath(current, ["spec", "finalizers"], finalizers) as KubeObject;
  state.objects.writeInternal(resource, next);
  answer(state, parsed, call, 200, state.objects.find(resource, "", name)?.object ?? next);
}
