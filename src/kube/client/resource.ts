import type * as MetaV1 from "kubernetes-types/meta/v1.js";

/** Metadata of an object that an API server has stored. */
export interface StoredMeta extends MetaV1.ObjectMeta {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
}

/** An object as read from an API server. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: StoredMeta;
}

/** An object of type `T` (of kubernetes-types, or of this project) as it is read from an API server: with metadata. */
export type Stored<T> = Omit<T, "metadata"> & { metadata: StoredMeta };

/**
 * An object of type `T` as it is written: without apiVersion and kind (the {@link ResourceType} has them) and uid; the status is optional.
 */
export type Draft<T extends KubeObject> = Omit<T, "apiVersion" | "kind" | "metadata" | "status"> & {
  apiVersion?: string;
  kind?: string;
  metadata: MetaV1.ObjectMeta;
  status?: unknown;
};

/** The type of an API resource, and how its objects are typed here. */
export interface ResourceType<T extends KubeObject> {
  /** The API group; empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  /** The plural name in lower case, as in the URL. */
  readonly plural: string;
  readonly namespaced: boolean;
  /** This field exists only for the type checker; no value has it. */
  readonly _object?: T;
}

/** Names one object. `namespace` is needed for, and only for, namespaced types. */
export interface ObjectRef {
  readonly name: string;
  readonly namespace?: string | undefined;
}

/** Names a resource type; `T` is the type of its objects as read. */
export function resourceType<T extends KubeObject>(init: Omit<ResourceType<T>, "_object">): ResourceType<T> {
  return Object.freeze({ ...init });
}

/** `v1`, `coil.cybozu.com/v2`. */
export function apiVersionOf(type: ResourceType<KubeObject>): string {
  return type.group === "" ? type.version : `${type.group}/${type.version}`;
}

/** `addresspools.coil.cybozu.com`, or `pods` for the core group. */
export function resourceName(type: ResourceType<KubeObject>): string {
  return type.group === "" ? type.plural : `${type.plural}.${type.group}`;
}

/** `namespace/name`, or only `name` for cluster-scoped objects. */
export function objectKey(object: {
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined };
}): string {
  const { name, namespace } = object.metadata;
  return namespace === undefined || namespace === "" ? name : `${namespace}/${name}`;
}

/** The inverse of {@link objectKey}. */
export function parseObjectKey(key: string): { readonly name: string; readonly namespace: string | undefined } {
  const slash = key.indexOf("/");
  return slash < 0
    ? { name: key, namespace: undefined }
    : { name: key.slice(slash + 1), namespace: key.slice(0, slash) };
}
