import { asObject, type Json, type JsonObject, withPath } from "./json.ts";

/** The parts of ObjectMeta that the server itself reads or writes (meta/v1). */
export type ObjectMeta = {
  name?: string;
  namespace?: string;
  generateName?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: { [key: string]: string };
  annotations?: { [key: string]: string };
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
  managedFields?: ManagedFieldsEntry[];
};

/** meta/v1 OwnerReference. */
export type OwnerReference = {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
};

/** meta/v1 ManagedFieldsEntry. */
export type ManagedFieldsEntry = {
  manager?: string;
  operation?: string;
  apiVersion?: string;
  time?: string;
  fieldsType?: string;
  fieldsV1?: JsonObject;
  subresource?: string;
};

/** Any API object. */
export interface KubeObject extends JsonObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
}

/** The object's metadata; only for objects that passed {@link toKubeObject} or the store. */
export function metaOf(object: JsonObject): ObjectMeta {
  return asObject(object["metadata"]) as ObjectMeta;
}

/** A copy with other metadata; a key with the value undefined is removed. */
export function withMeta<T extends JsonObject>(
  object: T,
  change: { [K in keyof ObjectMeta]: ObjectMeta[K] | undefined },
): T {
  const metadata: JsonObject = { ...asObject(object["metadata"]) };
  for (const [key, value] of Object.entries(change)) {
    if (value === undefined) delete metadata[key];
    else metadata[key] = value as Json;
  }
  return { ...object, metadata };
}

/** `group/version` or, for the core group, `version`. */
export function apiVersionOf(group: string, version: string): string {
  return group === "" ? version : `${group}/${version}`;
}

/** Splits an apiVersion; the core group is the empty string. */
export function parseApiVersion(apiVersion: string): { readonly group: string; readonly version: string } {
  const slash = apiVersion.indexOf("/");
  return slash < 0
    ? { group: "", version: apiVersion }
    : { group: apiVersion.slice(0, slash), version: apiVersion.slice(slash + 1) };
}

/** Time as the API writes it: RFC 3339, whole seconds. */
export function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

/** A copy without `status`. */
export function withoutStatus(object: JsonObject): JsonObject {
  return withPath(object, ["status"], undefined);
}
