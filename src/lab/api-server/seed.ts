import { randomUUID } from "node:crypto";
import { alreadyExists } from "./errors.ts";
import { unknownKind } from "./handlers/object-rules.ts";
import type { ServerState } from "./http/state.ts";
import type { JsonObject } from "./object/json.ts";
import { type KubeObject, timestamp, withMeta } from "./object/meta.ts";
import { keyOf } from "./store/entry.ts";

/** An object to store as it is. Needs apiVersion, kind and metadata.name; missing metadata is filled in. */
export interface SeedObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly [key: string]: unknown };
  readonly [key: string]: unknown;
}

/** The namespaces that every cluster has. */
export function systemNamespaces(): SeedObject[] {
  return ["default", "kube-system", "kube-public", "kube-node-lease"].map((name) => ({
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name, labels: { "kubernetes.io/metadata.name": name } },
    spec: { finalizers: ["kubernetes"] },
    status: { phase: "Active" },
  }));
}

/** Stores objects as they are, in the stored version of their kind. Throws ApiError. */
export function seedObjects(state: ServerState, objects: Iterable<SeedObject>): number {
  const { store, registry, clock } = state;
  const created = timestamp(clock.now());
  const batches = new Map<string, KubeObject[]>();
  const seen = new Set<string>();
  let count = 0;
  for (const seed of objects) {
    const object = seed as unknown as JsonObject as KubeObject;
    const resource = registry.findKind(object.apiVersion, object.kind);
    if (resource === undefined) throw unknownKind(object.apiVersion, object.kind);
    const { metadata } = object;
    const namespace = resource.namespaced ? (metadata.namespace ?? "default") : undefined;
    const key = `${resource.storage} ${keyOf(namespace ?? "", metadata.name ?? "")}`;
    if (seen.has(key) || state.objects.find(resource, namespace ?? "", metadata.name ?? "") !== undefined)
      throw alreadyExists(resource, metadata.name ?? "");
    seen.add(key);
    const stored = { ...(resource.toStorage?.(object) ?? object), apiVersion: resource.storageApiVersion };
    const batch = batches.get(resource.storage) ?? [];
    batch.push(
      withMeta(stored, {
        namespace,
        uid: metadata.uid ?? randomUUID(),
        creationTimestamp: metadata.creationTimestamp ?? created,
        ...(resource.generation ? { generation: metadata.generation ?? 1 } : {}),
      }),
    );
    batches.set(resource.storage, batch);
    count += 1;
  }
  for (const [storage, batch] of batches) store.load(storage, batch);
  return count;
}
