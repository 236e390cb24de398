import { ApiError, badRequest, conflict } from "../errors.ts";
import { asArray, asObject, asString, at, type Json, type JsonObject } from "../object/json.ts";
import { type KubeObject, timestamp, withMeta } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { selectorMatches } from "../select/selector-object.ts";
import type { Store } from "../store/store.ts";

/** A pod with the node that a Binding names. Throws ApiError `Conflict` if it already has one, or waits for its scheduling gates. */
export function bindPod(resource: ResourceDef, pod: KubeObject, binding: JsonObject, nowMs: number): KubeObject {
  const node = asString(at(binding, "target", "name"));
  if (node === "") throw badRequest("cannot bind the pod: target.name must name a node");
  const name = pod.metadata.name ?? "";
  if (pod.metadata.deletionTimestamp !== undefined)
    throw conflict(resource, name, `pod ${name} is being deleted, cannot be assigned to a host`);
  const now = asString(at(pod, "spec", "nodeName"));
  if (now !== "") throw conflict(resource, name, `pod ${name} is already assigned to node ${JSON.stringify(now)}`);
  if (asArray(at(pod, "spec", "schedulingGates")).length > 0)
    throw conflict(resource, name, `pod ${name} has non-empty .spec.schedulingGates`);
  const uid = asString(at(binding, "metadata", "uid"));
  if (uid !== "" && uid !== pod.metadata.uid)
    throw conflict(
      resource,
      name,
      `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${pod.metadata.uid}`,
    );
  const scheduled = { type: "PodScheduled", status: "True", lastTransitionTime: timestamp(nowMs) };
  const status = asObject(pod["status"]);
  const conditions = asArray(status["conditions"]).filter((item) => asObject(item)["type"] !== "PodScheduled");
  const annotations = {
    ...pod.metadata.annotations,
    ...(asObject(at(binding, "metadata", "annotations")) as { [key: string]: string }),
  };
  const bound: KubeObject = {
    ...pod,
    spec: { ...asObject(pod["spec"]), nodeName: node },
    status: { ...status, conditions: [...conditions, scheduled] },
  };
  return Object.keys(annotations).length === 0 ? bound : withMeta(bound, { annotations });
}

/** Refuses an eviction that a PodDisruptionBudget forbids (policy/v1). Throws ApiError `TooManyRequests`. */
export function checkDisruptionBudgets(store: Store, pod: KubeObject): void {
  const { namespace = "", labels = {} } = pod.metadata;
  for (const { object } of store.collection("poddisruptionbudgets.policy").list(`${namespace}/`)) {
    if (!selectorMatches(at(object, "spec", "selector"), labels)) continue;
    const allowed: Json | undefined = at(object, "status", "disruptionsAllowed");
    if (typeof allowed === "number" && allowed > 0) continue;
    throw new ApiError("TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", {
      details: {
        causes: [
          {
            reason: "DisruptionBudget",
            message: `The disruption budget ${object.metadata.name} does not allow evicting pods currently`,
            field: "",
          },
        ],
        retryAfterSeconds: 10,
      },
    });
  }
}
