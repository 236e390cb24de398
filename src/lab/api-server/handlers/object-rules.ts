/** The rules of object writes that need no store: the fields that an endpoint may change, the end of an object. Pure. */
import { ApiError, conflict } from "../errors.ts";
import { asObject, clone, isObject, type Json, type JsonObject } from "../object/json.ts";
import { apiVersionOf, type KubeObject, parseApiVersion, timestamp, withMeta } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";

/** Finalizers of garbage collection (meta/v1). */
export const FOREGROUND = "foregroundDeletion";
export const ORPHAN = "orphan";

/** Removes from `object`, in place, the members that `pruned` does not have. */
export function keepCommon(object: Json, pruned: Json): void {
  if (Array.isArray(object) && Array.isArray(pruned)) {
    for (const [index, item] of object.entries()) keepCommon(item, pruned[index] ?? null);
    return;
  }
  if (!isObject(object) || !isObject(pruned)) return;
  for (const key of Object.keys(object)) {
    const inner = pruned[key];
    const mine = object[key];
    if (inner === undefined || mine === null) delete object[key];
    else if (mine !== undefined) keepCommon(mine, inner);
  }
}

/** A stored object as this version shows it. */
export function fromStored(resource: ResourceDef, object: KubeObject): KubeObject {
  if (resource.fromStorage !== undefined) return resource.fromStorage(object);
  const apiVersion = apiVersionOf(resource.group, resource.version);
  return object.apiVersion === apiVersion ? object : { ...object, apiVersion };
}

/** An object of this version as it is stored. */
export function toStored(resource: ResourceDef, object: KubeObject): KubeObject {
  if (resource.toStorage !== undefined) return resource.toStorage(object);
  return object.apiVersion === resource.storageApiVersion
    ? object
    : { ...object, apiVersion: resource.storageApiVersion };
}

/** Restores the fields that the endpoint does not write: status on the main resource, all else on the status subresource. */
export function restoreOther(
  resource: ResourceDef,
  wanted: KubeObject,
  old: KubeObject,
  subresource: string,
): KubeObject {
  const take = (from: KubeObject, status: KubeObject): KubeObject => {
    const { status: _status, ...rest } = from;
    return { ...rest, ...(status["status"] === undefined ? {} : { status: clone(status["status"]) }) } as KubeObject;
  };
  if (subresource === "status") {
    const mine = take(clone(old), wanted);
    // Real servers also accept labels and annotations of built-in kinds in a status update, but never finalizers and owners.
    return resource.custom
      ? mine
      : withMeta(mine, { labels: wanted.metadata.labels, annotations: wanted.metadata.annotations });
  }
  return resource.hasStatus ? take(wanted, old) : wanted;
}

/** Metadata that only the server sets. */
export function systemMeta(resource: ResourceDef, old: KubeObject): Parameters<typeof withMeta>[1] {
  const { uid, creationTimestamp, deletionTimestamp, deletionGracePeriodSeconds, generation, generateName, name } =
    old.metadata;
  return {
    name,
    uid,
    creationTimestamp,
    deletionTimestamp,
    deletionGracePeriodSeconds,
    generation,
    generateName,
    namespace: resource.namespaced ? old.metadata.namespace : undefined,
    resourceVersion: undefined,
  };
}

/** The part of an object whose changes increase the generation: everything but metadata and status. */
export function wish(object: KubeObject, resource: ResourceDef): JsonObject {
  const { metadata: _metadata, status, ...rest } = object;
  return resource.hasStatus || status === undefined ? rest : { ...rest, status };
}

/** Returns true if a namespace still waits for its content. */
export function holdsNamespace(resource: ResourceDef, object: KubeObject): boolean {
  return (
    resource.storage === "namespaces" &&
    Array.isArray(asObject(object["spec"])["finalizers"]) &&
    (asObject(object["spec"])["finalizers"] as Json[]).length > 0
  );
}

/** Returns true if an object that is being deleted can be removed now. */
export function isFinished(resource: ResourceDef, object: KubeObject): boolean {
  const { deletionTimestamp, deletionGracePeriodSeconds = 0, finalizers = [] } = object.metadata;
  return (
    deletionTimestamp !== undefined &&
    deletionGracePeriodSeconds === 0 &&
    finalizers.length === 0 &&
    !holdsNamespace(resource, object)
  );
}

/** The finalizers of a propagation policy (meta/v1 DeleteOptions). */
export function propagationFinalizers(finalizers: readonly string[], policy: string | undefined): string[] {
  const rest = finalizers.filter((name) => policy === undefined || (name !== FOREGROUND && name !== ORPHAN));
  if (policy === "Foreground") return [...rest, FOREGROUND];
  return policy === "Orphan" ? [...rest, ORPHAN] : rest;
}

/** Throws ApiError `Conflict` if uid or resourceVersion differ from those of the delete. */
export function checkPreconditions(
  resource: ResourceDef,
  object: KubeObject,
  options: { readonly uid?: string | undefined; readonly resourceVersion?: string | undefined },
): void {
  const { name = "", uid = "", resourceVersion = "" } = object.metadata;
  if (options.uid !== undefined && options.uid !== uid) {
    throw conflict(
      resource,
      name,
      `Precondition failed: UID in precondition: ${options.uid}, UID in object meta: ${uid}`,
    );
  }
  if (options.resourceVersion !== undefined && options.resourceVersion !== resourceVersion) {
    throw conflict(
      resource,
      name,
      `Precondition failed: ResourceVersion in precondition: ${options.resourceVersion}, ResourceVersion in object meta: ${resourceVersion}`,
    );
  }
}

/** The error for a kind that nothing serves. */
export function unknownKind(apiVersion: string, kind: string): ApiError {
  const { group, version } = parseApiVersion(apiVersion);
  return new ApiError(
    "NotFound",
    `no kind ${JSON.stringify(kind)} is served in version ${JSON.stringify(version)} of group ${JSON.stringify(group)}`,
  );
}

/** The object marked for deletion: time, grace period, finalizers of the propagation policy. */
export function markDeleted(
  resource: ResourceDef,
  object: KubeObject,
  options: { readonly gracePeriodSeconds?: number | undefined; readonly propagationPolicy?: string | undefined },
  nowMs: number,
): KubeObject {
  const { metadata } = object;
  const wanted = resource.strategy.graceSeconds?.(object, options.gracePeriodSeconds) ?? 0;
  const left = metadata.deletionGracePeriodSeconds;
  // A second delete may shorten the grace period, never lengthen it.
  const grace =
    metadata.deletionTimestamp === undefined ? wanted : Math.min(left ?? 0, options.gracePeriodSeconds ?? left ?? 0);
  const finalizers = propagationFinalizers(metadata.finalizers ?? [], options.propagationPolicy);
  const shortened = metadata.deletionTimestamp !== undefined && grace === (left ?? 0);
  const deletionTimestamp = shortened ? metadata.deletionTimestamp : timestamp(nowMs + grace * 1000);
  const marked = withMeta(object, {
    deletionTimestamp,
    deletionGracePeriodSeconds: grace,
    finalizers: finalizers.length === 0 ? undefined : finalizers,
    ...(resource.generation && metadata.deletionTimestamp === undefined
      ? { generation: (metadata.generation ?? 0) + 1 }
      : {}),
  });
  if (resource.storage !== "namespaces") return marked;
  return { ...marked, status: { ...asObject(marked["status"]), phase: "Terminating" } };
}
