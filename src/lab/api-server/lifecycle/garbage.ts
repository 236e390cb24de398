import { ApiError } from "../errors.ts";
import { FOREGROUND, ORPHAN } from "../handlers/object-rules.ts";
import type { DeleteOptions } from "../handlers/objects.ts";
import { type KubeObject, type OwnerReference, withMeta } from "../object/meta.ts";
import type { StoreEvent } from "../store/entry.ts";
import type { LifecycleDeps } from "./deps.ts";
import { systemUser } from "./system-user.ts";

interface StoredObject {
  readonly storage: string;
  readonly namespace: string;
  readonly name: string;
}

/** Deletes objects whose owners do not exist, and carries out foreground and orphan deletion (Kubernetes garbage collector). */
export class GarbageCollector {
  readonly #deps: LifecycleDeps;
  readonly #byUid = new Map<string, StoredObject>();
  /** Owner's uid to the uids of its dependents. */
  readonly #dependents = new Map<string, Set<string>>();

  constructor(deps: LifecycleDeps) {
    this.#deps = deps;
  }

  /** Follows a commit. */
  observe(storage: string, event: StoreEvent): void {
    const { metadata } = event.entry.object;
    const { uid = "", namespace = "", name = "", ownerReferences: owners = [] } = metadata;
    for (const owner of event.previous?.object.metadata.ownerReferences ?? []) this.#forget(owner.uid, uid);
    if (event.type === "DELETED") {
      this.#byUid.delete(uid);
      for (const dependent of this.#dependents.get(uid) ?? []) this.#checkSoon(dependent);
      for (const owner of owners) this.#ownerSoon(owner.uid);
      return;
    }
    this.#byUid.set(uid, { storage, namespace, name });
    for (const owner of owners) this.#remember(owner.uid, uid);
    if (owners.length > 0) this.#checkSoon(uid);
    if (metadata.deletionTimestamp !== undefined) this.#ownerSoon(uid);
    for (const owner of owners) this.#ownerSoon(owner.uid);
  }

  #remember(owner: string, dependent: string): void {
    const found = this.#dependents.get(owner);
    if (found === undefined) this.#dependents.set(owner, new Set([dependent]));
    else found.add(dependent);
  }

  #forget(owner: string, dependent: string): void {
    const found = this.#dependents.get(owner);
    found?.delete(dependent);
    if (found?.size === 0) this.#dependents.delete(owner);
  }

  #checkSoon(uid: string): void {
    this.#deps.queue.add(`gc dependent ${uid}`, () => this.#checkDependent(uid));
  }

  #ownerSoon(uid: string): void {
    if (this.#object(uid)?.object.metadata.deletionTimestamp === undefined) return;
    this.#deps.queue.add(`gc owner ${uid}`, () => this.#checkOwner(uid));
  }

  #object(uid: string): { readonly place: StoredObject; readonly object: KubeObject } | undefined {
    const place = this.#byUid.get(uid);
    if (place === undefined) return undefined;
    const object = this.#deps.store.collection(place.storage).get(`${place.namespace}/${place.name}`)?.object;
    return object === undefined || object.metadata.uid !== uid ? undefined : { place, object };
  }

  /** Deletes a dependent if none of its owners exists; removes references to missing owners if one owner exists. */
  async #checkDependent(uid: string): Promise<void> {
    const found = this.#object(uid);
    const owners = found?.object.metadata.ownerReferences ?? [];
    if (found === undefined || owners.length === 0) return;
    const alive = owners.filter((owner) => this.#isOwner(owner, found.object));
    if (alive.length === owners.length) return;
    if (alive.length === 0) return this.#delete(found.place, uid, "Background");
    this.#write(found.place, withMeta(found.object, { ownerReferences: alive }));
  }

  /** Returns true if the object of a reference exists, in the same namespace or cluster-scoped. */
  #isOwner(owner: OwnerReference, dependent: KubeObject): boolean {
    const found = this.#object(owner.uid)?.object;
    if (found === undefined) return false;
    const { namespace } = found.metadata;
    return namespace === undefined || namespace === dependent.metadata.namespace;
  }

  /** Carries out the deletion finalizers of a terminating owner. */
  async #checkOwner(uid: string): Promise<void> {
    const owner = this.#object(uid);
    if (owner === undefined) return;
    const { finalizers = [] } = owner.object.metadata;
    const dependents = [...(this.#dependents.get(uid) ?? [])]
      .map((id) => this.#object(id))
      .filter((item) => item !== undefined);
    if (finalizers.includes(ORPHAN)) {
      for (const { place, object } of dependents) {
        const rest = (object.metadata.ownerReferences ?? []).filter((reference) => reference.uid !== uid);
        this.#write(place, withMeta(object, { ownerReferences: rest.length === 0 ? undefined : rest }));
      }
      this.#release(uid, ORPHAN);
    } else if (finalizers.includes(FOREGROUND)) {
      const blocking = dependents.filter(({ object }) => blocks(object, uid));
      if (blocking.length === 0) return this.#release(uid, FOREGROUND);
      for (const { place, object } of dependents) {
        if (object.metadata.deletionTimestamp === undefined && this.#ownedOnlyBy(object, uid)) {
          await this.#delete(place, object.metadata.uid ?? "", "Foreground");
        } else if (!this.#ownedOnlyBy(object, uid)) {
          const rest = (object.metadata.ownerReferences ?? []).filter((reference) => reference.uid !== uid);
          this.#write(place, withMeta(object, { ownerReferences: rest }));
        }
      }
    }
  }

  #ownedOnlyBy(object: KubeObject, uid: string): boolean {
    const others = (object.metadata.ownerReferences ?? []).filter((reference) => reference.uid !== uid);
    return !others.some(
      (reference) =>
        this.#object(reference.uid)?.object.metadata.deletionTimestamp === undefined &&
        this.#isOwner(reference, object),
    );
  }

  #release(uid: string, finalizer: string): void {
    const found = this.#object(uid);
    if (found === undefined) return;
    const finalizers = (found.object.metadata.finalizers ?? []).filter((name) => name !== finalizer);
    this.#write(found.place, withMeta(found.object, { finalizers: finalizers.length === 0 ? undefined : finalizers }));
  }

  #write(place: StoredObject, object: KubeObject): void {
    const resource = this.#deps.registry.forStorage(place.storage);
    if (resource !== undefined) this.#deps.objects.writeInternal(resource, object);
  }

  async #delete(
    place: StoredObject,
    uid: string,
    propagationPolicy: DeleteOptions["propagationPolicy"],
  ): Promise<void> {
    const resource = this.#deps.registry.forStorage(place.storage);
    if (resource === undefined) return;
    try {
      await this.#deps.objects.delete(resource, place.namespace, place.name, {
        uid,
        propagationPolicy,
        user: systemUser("garbage-collector"),
      });
    } catch (error) {
      // The object was deleted, or another has its name: in both cases it need not be deleted.
      if (!(error instanceof ApiError) || (error.code !== "NotFound" && error.code !== "Conflict")) throw error;
    }
  }
}

function blocks(object: KubeObject, owner: string): boolean {
  return (object.metadata.ownerReferences ?? []).some(
    (reference) => reference.uid === owner && reference.blockOwnerDeletion === true,
  );
}
