import type { Clock } from "#base/clock";
import { applyConfiguration, type TypeInfo, trackUpdate } from "../apply/index.ts";
import type { UserInfo } from "../auth/auth.ts";
import { alreadyExists, badRequest, conflict, forbidden, notFound } from "../errors.ts";
import { clone, equal, type Json, type JsonObject } from "../object/json.ts";
import { apiVersionOf, type KubeObject, type ManagedFieldsEntry, timestamp, withMeta } from "../object/meta.ts";
import type { Registry } from "../resources/registry.ts";
import type { ResourceDef } from "../resources/types.ts";
import { type Entry, keyOf } from "../store/entry.ts";
import type { Store } from "../store/store.ts";
import { type AdmissionPlugin, type AdmissionRequest, runAdmission } from "./admission.ts";
import { type FieldValidation, normalize, toKubeObject, validateObject } from "./decode.ts";
import {
  checkPreconditions,
  fromStored,
  holdsNamespace,
  isFinished,
  keepCommon,
  markDeleted,
  restoreOther,
  systemMeta,
  toStored,
  wish,
} from "./object-rules.ts";

/** The options of a write. */
export interface WriteOptions {
  readonly user: UserInfo;
  /** Name for `managedFields`. */
  readonly manager: string;
  readonly dryRun: boolean;
  readonly fieldValidation: FieldValidation;
  /** `status`, `scale`, or empty. */
  readonly subresource: string;
  readonly warn: (text: string) => void;
}

/** The options of a delete (meta/v1 DeleteOptions). */
export interface DeleteOptions {
  readonly uid?: string | undefined;
  readonly resourceVersion?: string | undefined;
  readonly gracePeriodSeconds?: number | undefined;
  readonly propagationPolicy?: "Orphan" | "Background" | "Foreground" | undefined;
  readonly dryRun?: boolean;
  /** True if the request is for a collection: admission is then called for each object, without its name. */
  readonly ofCollection?: boolean;
  readonly user: UserInfo;
}

/** The outcome of a delete: the object's last or current state, and whether it was removed. */
export interface Deleted {
  readonly object: KubeObject;
  readonly gone: boolean;
}

/** The dependencies of {@link Objects}. */
export interface ObjectsDeps {
  readonly store: Store;
  readonly registry: Registry;
  readonly clock: Clock;
  readonly newUid: () => string;
  /** Random lower-case suffix of five characters for `generateName`. */
  readonly newSuffix: () => string;
  readonly admission: readonly AdmissionPlugin[];
}

/** The number of times that a write without a resourceVersion is tried again after a conflict. */
const MAX_ATTEMPTS = 5;

/** The rules of reading and writing single objects, like the registry's generic store of the real server. */
export class Objects {
  readonly #deps: ObjectsDeps;

  constructor(deps: ObjectsDeps) {
    this.#deps = deps;
  }

  /** The stored state. Throws ApiError `NotFound`. */
  get(resource: ResourceDef, namespace: string, name: string): Entry {
    const entry = this.find(resource, namespace, name);
    if (entry === undefined) throw notFound(resource, name);
    return entry;
  }

  find(resource: ResourceDef, namespace: string, name: string): Entry | undefined {
    return this.#deps.store.collection(resource.storage).get(keyOf(namespace, name));
  }

  /** Creates an object. Throws ApiError: `AlreadyExists`, `Invalid`, `NotFound` (namespace), `Forbidden` (it is terminating). */
  async create(resource: ResourceDef, namespace: string, body: JsonObject, options: WriteOptions): Promise<KubeObject> {
    const { store, registry } = this.#deps;
    const object = toKubeObject(resource, body);
    this.#place(resource, namespace, object);
    normalize(object, resource, registry.definitions, options.fieldValidation, options.warn);
    if (object.metadata.resourceVersion) throw badRequest("resourceVersion should not be set on objects to be created");
    const stored = toStored(resource, object);
    this.#initialise(resource, stored);
    validateObject(resource, fromStored(resource, stored), undefined, registry.definitions, options.warn);
    const now = timestamp(this.#deps.clock.now());
    const manager = this.#managerOf(resource, options, "Update");
    const { managedFields: _client, ...metadata } = stored.metadata;
    const tracked = trackUpdate(this.#typeOf(resource, ""), undefined, fromStored(resource, stored), [], manager, now);
    let final: KubeObject = { ...stored, metadata: { ...metadata, managedFields: tracked } };
    final = (await this.#admit("CREATE", resource, final, undefined, options)) ?? final;
    final = resource.strategy.admitted?.(final) ?? final;
    this.#checkNamespace(resource, namespace);
    if (this.find(resource, namespace, final.metadata.name ?? "") !== undefined) {
      throw alreadyExists(resource, final.metadata.name ?? "");
    }
    return options.dryRun ? final : store.write(resource.storage, final).object;
  }

  /**
   * Reads, changes, checks and commits. `change` gets the current state as the resource's version shows it and returns the
   * wanted one; it is called again after a conflict if the wanted state has no resourceVersion.
   */
  async update(
    resource: ResourceDef,
    namespace: string,
    name: string,
    change: (current: KubeObject) => JsonObject,
    options: WriteOptions,
  ): Promise<KubeObject> {
    for (let attempt = 1; ; attempt += 1) {
      const current = this.get(resource, namespace, name);
      const wanted = toKubeObject(resource, change(fromStored(resource, current.object)));
      this.#checkIdentity(resource, namespace, name, wanted, current.object);
      const next = this.#prepare(resource, wanted, current.object, options);
      const managedFields = this.#track(resource, wanted, next, current.object, options);
      let final = withMeta(next, { managedFields: managedFields.length === 0 ? undefined : managedFields });
      final = (await this.#admit("UPDATE", resource, final, current.object, options)) ?? final;
      if (this.find(resource, namespace, name) === current) return this.#commit(resource, final, current, options);
      if (attempt >= MAX_ATTEMPTS) throw conflict(resource, name);
    }
  }

  /** Server-side apply: creates the object when it is absent. Throws ApiError `Conflict` with causes unless `force`. */
  async apply(
    resource: ResourceDef,
    namespace: string,
    name: string,
    body: JsonObject,
    options: WriteOptions & { readonly force: boolean },
  ): Promise<{ object: KubeObject; created: boolean }> {
    const config = toKubeObject(resource, body);
    if (config.metadata.managedFields !== undefined) throw badRequest("metadata.managedFields must be nil");
    config.metadata.name ??= name;
    normalizeApplied(config, resource, this.#deps.registry, options);
    const manager = this.#managerOf(resource, options, "Apply");
    const time = timestamp(this.#deps.clock.now());
    const type = this.#typeOf(resource, options.subresource);
    const current = this.find(resource, namespace, name);
    if (current === undefined) {
      if (options.subresource !== "") throw notFound(resource, name);
      if (config.metadata.uid || config.metadata.resourceVersion)
        throw conflict(resource, name, "uid or resourceVersion is set, but the object does not exist");
      const { managedFields } = applyConfiguration(type, {}, config, [], { manager, time, force: options.force, name });
      const object = await this.#createApplied(resource, namespace, config, managedFields, options);
      return { object, created: true };
    }
    let managedFields: ManagedFieldsEntry[] = [];
    const object = await this.#updateApplied(resource, namespace, name, options, (live) => {
      const { metadata } = live;
      const applied = applyConfiguration(
        type,
        withMeta(live, { managedFields: undefined }),
        config,
        metadata.managedFields ?? [],
        { manager, time, force: options.force, name },
      );
      managedFields = applied.managedFields;
      return { object: applied.object, managedFields };
    });
    return { object, created: false };
  }

  /** Deletes, or marks for deletion if it has finalizers or a grace period. Throws ApiError `NotFound`, `Conflict` (preconditions). */
  async delete(resource: ResourceDef, namespace: string, name: string, options: DeleteOptions): Promise<Deleted> {
    const { store } = this.#deps;
    await this.#admitDelete(resource, this.get(resource, namespace, name).object, options);
    const current = this.get(resource, namespace, name);
    checkPreconditions(resource, current.object, options);
    const marked = markDeleted(resource, current.object, options, this.#deps.clock.now());
    const { finalizers = [], deletionGracePeriodSeconds: grace = 0 } = marked.metadata;
    const held = finalizers.length > 0 || grace > 0 || holdsNamespace(resource, marked);
    if (options.dryRun === true) return { object: marked, gone: !held };
    if (!held) return { object: store.remove(resource.storage, current.key)?.object ?? current.object, gone: true };
    if (equal(marked, current.object)) return { object: current.object, gone: false };
    return { object: store.write(resource.storage, marked).object, gone: false };
  }

  /** Writes a state unchanged, for the server's own controllers; removes the object if it has no finalizers any more. */
  writeInternal(resource: ResourceDef, object: KubeObject): void {
    const current = this.find(resource, object.metadata.namespace ?? "", object.metadata.name ?? "");
    if (current === undefined || equal(current.object, object)) return;
    if (isFinished(resource, object)) this.#deps.store.remove(resource.storage, current.key, object);
    else this.#deps.store.write(resource.storage, object);
  }

  async #createApplied(
    resource: ResourceDef,
    namespace: string,
    config: KubeObject,
    managedFields: ManagedFieldsEntry[],
    options: WriteOptions,
  ): Promise<KubeObject> {
    // A plain create would record an Update; here the applied fields are recorded instead.
    const created = await this.create(resource, namespace, clone(config), { ...options, dryRun: true });
    const object = withMeta(created, { managedFields });
    if (this.find(resource, namespace, object.metadata.name ?? "") !== undefined)
      throw alreadyExists(resource, object.metadata.name ?? "");
    return options.dryRun ? object : this.#deps.store.write(resource.storage, object).object;
  }

  async #updateApplied(
    resource: ResourceDef,
    namespace: string,
    name: string,
    options: WriteOptions,
    change: (live: KubeObject) => { object: JsonObject; managedFields: ManagedFieldsEntry[] },
  ): Promise<KubeObject> {
    for (let attempt = 1; ; attempt += 1) {
      const current = this.get(resource, namespace, name);
      const { object, managedFields } = change(fromStored(resource, current.object));
      const wanted = toKubeObject(resource, clone(object));
      this.#checkIdentity(resource, namespace, name, wanted, current.object);
      const next = this.#prepare(resource, wanted, current.object, options);
      let final = withMeta(next, { managedFields });
      final = (await this.#admit("UPDATE", resource, final, current.object, options)) ?? final;
      if (this.find(resource, namespace, name) === current) return this.#commit(resource, final, current, options);
      if (attempt >= MAX_ATTEMPTS) throw conflict(resource, name);
    }
  }

  #place(resource: ResourceDef, namespace: string, object: KubeObject): void {
    const { metadata } = object;
    if (resource.namespaced) {
      if (metadata.namespace !== undefined && metadata.namespace !== "" && metadata.namespace !== namespace) {
        throw badRequest(
          `the namespace of the provided object does not match the namespace sent on the request (${metadata.namespace} is not ${namespace})`,
        );
      }
      metadata.namespace = namespace;
    } else delete metadata.namespace;
    if (
      (metadata.name === undefined || metadata.name === "") &&
      typeof metadata.generateName === "string" &&
      metadata.generateName !== ""
    ) {
      metadata.name = metadata.generateName.slice(0, 58) + this.#deps.newSuffix();
    }
  }

  /** Sets the server's fields of a new object, in place. */
  #initialise(resource: ResourceDef, object: KubeObject): void {
    const { metadata } = object;
    for (const key of [
      "deletionTimestamp",
      "deletionGracePeriodSeconds",
      "selfLink",
      "resourceVersion",
      "generation",
    ]) {
      delete (metadata as JsonObject)[key];
    }
    metadata.uid = this.#deps.newUid();
    metadata.creationTimestamp = timestamp(this.#deps.clock.now());
    if (resource.generation) metadata.generation = 1;
    if (resource.custom && resource.hasStatus) delete object["status"];
    resource.strategy.defaults?.(object);
    resource.strategy.prepareCreate?.(object);
  }

  #checkNamespace(resource: ResourceDef, namespace: string): void {
    if (!resource.namespaced) return;
    const found = this.#deps.store.collection("namespaces").get(keyOf("", namespace));
    if (found === undefined) throw notFound({ group: "", plural: "namespaces" }, namespace);
    if (found.object.metadata.deletionTimestamp === undefined) return;
    throw forbidden(
      resource,
      "",
      `unable to create new content in namespace ${namespace} because it is being terminated`,
    );
  }

  #checkIdentity(
    resource: ResourceDef,
    namespace: string,
    name: string,
    wanted: KubeObject,
    current: KubeObject,
  ): void {
    const { metadata } = wanted;
    if (metadata.name !== name) {
      throw badRequest(`the name of the object (${metadata.name ?? ""}) does not match the name on the URL (${name})`);
    }
    if (resource.namespaced && metadata.namespace !== undefined && metadata.namespace !== namespace) {
      throw badRequest(
        `the namespace of the object (${metadata.namespace}) does not match the namespace on the request (${namespace})`,
      );
    }
    if (metadata.uid && metadata.uid !== current.metadata.uid) {
      throw conflict(
        resource,
        name,
        `Precondition failed: UID in precondition: ${metadata.uid}, UID in object meta: ${current.metadata.uid}`,
      );
    }
    if (metadata.resourceVersion && metadata.resourceVersion !== current.metadata.resourceVersion)
      throw conflict(resource, name);
  }

  /** The state to commit, in the stored version: the wanted one, with the old values of the fields that this endpoint may not change. */
  #prepare(resource: ResourceDef, wanted: KubeObject, current: KubeObject, options: WriteOptions): KubeObject {
    const { definitions } = this.#deps.registry;
    normalize(wanted, resource, definitions, options.fieldValidation, options.warn);
    const old = fromStored(resource, current);
    let next = restoreOther(resource, wanted, old, options.subresource);
    next = withMeta(next, systemMeta(resource, old));
    resource.strategy.defaults?.(next);
    resource.strategy.prepareUpdate?.(next, old);
    if (resource.generation && !equal(wish(next, resource), wish(old, resource))) {
      next.metadata.generation = (old.metadata.generation ?? 0) + 1;
    }
    validateObject(resource, next, old, definitions, options.warn);
    return toStored(resource, next);
  }

  #track(
    resource: ResourceDef,
    wanted: KubeObject,
    next: KubeObject,
    current: KubeObject,
    options: WriteOptions,
  ): ManagedFieldsEntry[] {
    const entries = wanted.metadata.managedFields ?? current.metadata.managedFields ?? [];
    const without = (object: KubeObject): KubeObject =>
      withMeta(fromStored(resource, object), { managedFields: undefined, resourceVersion: undefined });
    const old = without(current);
    const now = without(next);
    const unchanged = equal(old, now);
    if (unchanged && equal(entries as unknown as Json, (current.metadata.managedFields ?? []) as unknown as Json))
      return entries;
    const manager = this.#managerOf(resource, options, "Update");
    return trackUpdate(
      this.#typeOf(resource, options.subresource),
      old,
      now,
      entries,
      manager,
      timestamp(this.#deps.clock.now()),
    );
  }

  #commit(resource: ResourceDef, final: KubeObject, current: Entry, options: WriteOptions): KubeObject {
    const next = withMeta(final, { resourceVersion: current.object.metadata.resourceVersion });
    // A write that changes nothing makes no revision and no event.
    if (equal(next, current.object)) return current.object;
    if (options.dryRun) return next;
    if (!isFinished(resource, next)) return this.#deps.store.write(resource.storage, next).object;
    return this.#deps.store.remove(resource.storage, current.key, next)?.object ?? next;
  }

  #typeOf(resource: ResourceDef, subresource: string): TypeInfo {
    const { definitions } = this.#deps.registry;
    const reset = subresource === "status" ? ["spec", "metadata"] : resource.hasStatus ? ["status"] : [];
    return { schema: resource.schema, definitions, subject: resource, reset };
  }

  #managerOf(
    resource: ResourceDef,
    options: WriteOptions,
    operation: "Apply" | "Update",
  ): { manager: string; operation: "Apply" | "Update"; apiVersion: string; subresource: string } {
    return {
      manager: options.manager,
      operation,
      apiVersion: apiVersionOf(resource.group, resource.version),
      subresource: options.subresource,
    };
  }

  async #admit(
    operation: AdmissionRequest["operation"],
    resource: ResourceDef,
    object: KubeObject,
    old: KubeObject | undefined,
    options: WriteOptions,
  ): Promise<KubeObject | undefined> {
    const { group, version, plural } = resource;
    const { user, dryRun, subresource, warn } = options;
    const { namespace = "", name = "" } = object.metadata;
    const admitted = await runAdmission(this.#deps.admission, {
      operation,
      group,
      version,
      resource: plural,
      subresource,
      namespace,
      name,
      user,
      dryRun,
      object: fromStored(resource, object),
      old: old === undefined ? undefined : fromStored(resource, old),
      warn,
    });
    return admitted === undefined ? undefined : toStored(resource, admitted);
  }

  async #admitDelete(resource: ResourceDef, old: KubeObject, options: DeleteOptions): Promise<void> {
    const { group, version, plural } = resource;
    const { namespace = "", name = "" } = old.metadata;
    const { user, dryRun = false, ofCollection = false } = options;
    await runAdmission(this.#deps.admission, {
      operation: "DELETE",
      group,
      version,
      resource: plural,
      subresource: "",
      namespace,
      name: ofCollection ? "" : name,
      user,
      dryRun,
      object: undefined,
      old: fromStored(resource, old),
      warn: () => undefined,
    });
  }
}

/** An applied configuration is pruned but not defaulted: no manager has applied a default. */
function normalizeApplied(config: KubeObject, resource: ResourceDef, registry: Registry, options: WriteOptions): void {
  const copy = clone(config);
  normalize(copy, resource, registry.definitions, options.fieldValidation, options.warn);
  keepCommon(config, copy);
}
