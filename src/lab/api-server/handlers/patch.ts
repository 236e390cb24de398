import { ApiError, badRequest } from "../errors.ts";
import { clone, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import { applyJsonPatch } from "../patch/json-patch.ts";
import { applyMergePatch } from "../patch/merge-patch.ts";
import { applyStrategicPatch } from "../patch/strategic.ts";
import type { ResourceDef } from "../resources/types.ts";
import type { Definitions } from "../schema/index.ts";

/** The patch types, by media type (apimachinery pkg/types). */
export const PATCH_TYPES = {
  json: "application/json-patch+json",
  merge: "application/merge-patch+json",
  strategic: "application/strategic-merge-patch+json",
  apply: "application/apply-patch+yaml",
} as const;

/** The media types of patches that a resource accepts. */
export function patchTypesOf({ custom }: Pick<ResourceDef, "custom">): string[] {
  return Object.values(PATCH_TYPES).filter((known) => !custom || known !== PATCH_TYPES.strategic);
}

/** Makes a function that patches an object, for every type except apply. Throws ApiError for types that the resource does not accept. */
export function patcher(
  type: string,
  patch: Json,
  resource: ResourceDef,
  definitions: Definitions,
): (object: KubeObject) => JsonObject {
  return (object) => {
    const result = patchedBy(type, patch, resource, definitions, object);
    if (!isObject(result)) throw badRequest("cannot apply the patch: its result is not an object");
    return result;
  };
}

function patchedBy(
  type: string,
  patch: Json,
  resource: ResourceDef,
  definitions: Definitions,
  object: KubeObject,
): Json {
  switch (type) {
    case PATCH_TYPES.json:
      return applyJsonPatch(object, patch);
    case PATCH_TYPES.merge:
      // The stored object is shared, and the result is normalised in place: it must be a copy.
      return clone(applyMergePatch(object, needObject(patch)));
    case PATCH_TYPES.strategic:
      if (resource.custom) throw unsupported(type, true);
      return clone(applyStrategicPatch(object, needObject(patch), resource.schema, definitions));
    default:
      throw unsupported(type, resource.custom);
  }
}

function needObject(patch: Json): JsonObject {
  if (!isObject(patch)) throw badRequest("cannot apply the patch: found no object");
  return patch;
}

function unsupported(type: string, custom: boolean): ApiError {
  const supported = patchTypesOf({ custom });
  return new ApiError(
    "UnsupportedMediaType",
    `the body of the request was in an unknown format - accepted media types include: ${supported.join(", ")} (found ${JSON.stringify(type)})`,
  );
}
