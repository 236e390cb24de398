import { badRequest, invalid } from "../errors.ts";
import { asObject, at, isObject, type Json, type JsonObject, withPath } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ResourceDef, ScalePaths } from "../resources/types.ts";
import { invalidValue } from "../schema/index.ts";
import { selectorText } from "../table/columns.ts";

/** The scale subresource of an object (autoscaling/v1 Scale). */
export function toScale(object: KubeObject, paths: ScalePaths): KubeObject {
  const { name = "", namespace, uid = "", resourceVersion = "", creationTimestamp = "" } = object.metadata;
  const selector = paths.selector === undefined ? undefined : at(object, ...paths.selector);
  const text = typeof selector === "string" ? selector : isObject(selector) ? selectorText(selector) : undefined;
  return {
    kind: "Scale",
    apiVersion: "autoscaling/v1",
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), uid, resourceVersion, creationTimestamp },
    spec: { replicas: Number(at(object, ...paths.specReplicas) ?? 0) },
    status: {
      replicas: Number(at(object, ...paths.statusReplicas) ?? 0),
      ...(text === undefined ? {} : { selector: text === "<none>" ? "" : text }),
    },
  };
}

/** The object with the number of replicas of a Scale, and its resourceVersion as precondition. */
export function withScale(object: KubeObject, scale: JsonObject, resource: ResourceDef, paths: ScalePaths): KubeObject {
  if (scale["kind"] !== undefined && scale["kind"] !== "Scale")
    throw badRequest(`cannot scale with a ${String(scale["kind"])}: want a Scale`);
  const replicas: Json | undefined = at(scale, "spec", "replicas") ?? 0;
  if (typeof replicas !== "number" || !Number.isInteger(replicas) || replicas < 0) {
    throw invalid({ ...resource, kind: "Scale" }, object.metadata.name ?? "", [
      invalidValue("spec.replicas", replicas, "must be greater than or equal to 0"),
    ]);
  }
  const scaled = withPath(object, paths.specReplicas, replicas) as KubeObject;
  const { resourceVersion, uid } = asObject(scale["metadata"]);
  const preconditions = {
    ...(typeof resourceVersion === "string" && resourceVersion !== "" ? { resourceVersion } : {}),
    ...(typeof uid === "string" && uid !== "" ? { uid } : {}),
  };
  return { ...scaled, metadata: { ...scaled.metadata, ...preconditions } };
}
