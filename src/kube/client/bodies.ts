import type { CallOptions, DeleteOptions, ListPage, Patch } from "./api.ts";
import { KubeError } from "./errors.ts";
import { apiVersionOf, type KubeObject, type ObjectRef, type ResourceType } from "./resource.ts";
import { isObject, isRecord, parseObject } from "./response.ts";

/** The media type of each kind of patch. */
export const PATCH_TYPES = {
  json: "application/json-patch+json",
  merge: "application/merge-patch+json",
  strategic: "application/strategic-merge-patch+json",
  // JSON is valid YAML, and this is the only media type that every server version accepts for apply.
  apply: "application/apply-patch+yaml",
} as const;

/** The Accept header for metadata only, or for whole objects if the server does not support that form. */
export function acceptMetadata(kind: "PartialObjectMetadata" | "PartialObjectMetadataList"): string {
  return `application/json;as=${kind};g=meta.k8s.io;v=v1,application/json`;
}

/** The body of a patch; an apply patch names its object. */
export function patchBody(type: ResourceType<KubeObject>, ref: ObjectRef, patch: Patch): unknown {
  switch (patch.type) {
    case "json":
      return patch.operations;
    case "apply": {
      const body: Record<string, unknown> = { ...patch.body };
      const metadata = isRecord(body["metadata"]) ? body["metadata"] : {};
      return { apiVersion: apiVersionOf(type), kind: type.kind, ...body, metadata: { ...metadata, ...ref } };
    }
    default:
      return patch.body;
  }
}

/** The object with the apiVersion and kind of its type. */
export function withType(type: ResourceType<KubeObject>, object: object): object {
  return { apiVersion: apiVersionOf(type), kind: type.kind, ...object };
}

/** The DeleteOptions of a delete. */
export function deleteBody(options: Omit<DeleteOptions, keyof CallOptions>): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "DeleteOptions",
    preconditions: options.preconditions,
    propagationPolicy: options.propagationPolicy,
    gracePeriodSeconds: options.gracePeriodSeconds,
  });
}

/** Parses a list and adds the shared fields to its items. Throws `bad-response`. */
export function parseList<T extends KubeObject>(action: string, text: string, type: ResourceType<T>): ListPage<T> {
  const value = parseObject(action, text);
  const metadata = isRecord(value["metadata"]) ? value["metadata"] : {};
  // A Go server writes an empty list of metadata alone as null.
  const items = value["items"] === null ? [] : value["items"];
  const { resourceVersion, continue: token, remainingItemCount } = metadata;
  if (!Array.isArray(items) || typeof resourceVersion !== "string") {
    throw new KubeError("bad-response", `Cannot ${action}: the answer is not a list with items and a resourceVersion`);
  }
  // Lists omit the apiVersion and kind of their items; an object that leaves its list should have them.
  const apiVersion = apiVersionOf(type);
  const objects = items.filter(isObject<T>);
  for (const object of objects) {
    object.apiVersion ??= apiVersion;
    object.kind ??= type.kind;
  }
  return {
    items: objects,
    // An item without a name is not an object, and must not make the list unusable.
    ...(objects.length === items.length ? {} : { nameless: items.length - objects.length }),
    resourceVersion,
    continueToken: typeof token === "string" && token !== "" ? token : undefined,
    remainingItemCount: typeof remainingItemCount === "number" ? remainingItemCount : undefined,
  };
}
