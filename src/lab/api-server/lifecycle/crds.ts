import type { Clock } from "#base/clock";
import { ApiError } from "../errors.ts";
import { asArray, asObject, asString, at, type JsonObject } from "../object/json.ts";
import { type KubeObject, timestamp, withMeta } from "../object/meta.ts";
import { type CustomVersion, customResources } from "../resources/custom.ts";
import { keyOf, type StoreEvent } from "../store/entry.ts";
import type { LifecycleDeps } from "./deps.ts";
import { systemUser } from "./system-user.ts";

const CRDS = "customresourcedefinitions.apiextensions.k8s.io";
const CLEANUP = "customresourcecleanup.apiextensions.k8s.io";

/** The dependencies of {@link CrdController}. */
export interface CrdDeps extends LifecycleDeps {
  readonly clock: Clock;
  /** Ends the watches of a resource that is not served any more. */
  readonly endWatches: (storage: string) => void;
}

/** Serves the types of CustomResourceDefinitions, writes their status, and cleans up after them. */
export class CrdController {
  readonly #deps: CrdDeps;
  readonly #served = new Map<string, readonly CustomVersion[]>();

  constructor(deps: CrdDeps) {
    this.#deps = deps;
  }

  /** Follows a commit. Serving starts and stops in the tick of the commit; status and clean-up follow later. */
  observe(storage: string, event: StoreEvent): void {
    const { object } = event.entry;
    const name = object.metadata.name ?? "";
    if (storage !== CRDS) {
      this.#observeInstance(storage, event);
      return;
    }
    if (event.type === "DELETED") {
      this.#withdraw(name);
      this.#deps.endWatches(name);
      return;
    }
    if (event.previous === undefined || event.previous.object["spec"] !== object["spec"]) this.#serve(name, object);
    this.#deps.queue.add(`crd ${name}`, () => this.#sync(name));
  }

  #observeInstance(storage: string, event: StoreEvent): void {
    if (event.type !== "DELETED" || !this.#served.has(storage)) return;
    if (this.#get(storage)?.metadata.deletionTimestamp !== undefined)
      this.#deps.queue.add(`crd ${storage}`, () => this.#sync(storage));
  }

  #get(name: string): KubeObject | undefined {
    return this.#deps.store.collection(CRDS).get(keyOf("", name))?.object;
  }

  #serve(name: string, crd: KubeObject): void {
    const { registry } = this.#deps;
    if (this.#conflictOf(crd) !== undefined) return;
    this.#withdraw(name);
    const versions = customResources(crd);
    for (const { resource, definition } of versions) {
      registry.definitions.set(resource.definition, definition);
      registry.add(resource);
    }
    this.#served.set(name, versions);
  }

  #withdraw(name: string): void {
    for (const { resource } of this.#served.get(name) ?? []) this.#deps.registry.remove(resource);
    this.#served.delete(name);
  }

  /** Another resource of the group that has one of the wanted names. */
  #conflictOf(crd: KubeObject): string | undefined {
    const spec = asObject(crd["spec"]);
    const names = asObject(spec["names"]);
    const wanted = new Set(
      [names["plural"], names["singular"], ...asArray(names["shortNames"])].map((name) => asString(name)),
    );
    for (const resource of this.#deps.registry.list()) {
      if (resource.group !== spec["group"] || resource.storage === crd.metadata.name) continue;
      const taken = [resource.plural, resource.singular, ...resource.shortNames].find((name) => wanted.has(name));
      if (taken !== undefined) return taken;
      if (resource.kind === names["kind"]) return resource.kind;
    }
    return undefined;
  }

  async #sync(name: string): Promise<void> {
    const crd = this.#get(name);
    if (crd === undefined) return;
    if (crd.metadata.deletionTimestamp !== undefined) return this.#cleanUp(name, crd);
    const { finalizers = [] } = crd.metadata;
    const held = finalizers.includes(CLEANUP) ? crd : withMeta(crd, { finalizers: [...finalizers, CLEANUP] });
    this.#write({ ...held, status: this.#status(crd) });
  }

  #status(crd: KubeObject): JsonObject {
    const spec = asObject(crd["spec"]);
    const taken = this.#conflictOf(crd);
    const old = asObject(crd["status"]);
    const stored = asArray(spec["versions"])
      .map((item) => asObject(item))
      .find((item) => item["storage"] === true);
    const storedVersions = new Set([...asArray(old["storedVersions"]), stored?.["name"] ?? ""]);
    const conditions = [
      taken === undefined
        ? this.#condition(old, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
        : this.#condition(old, "NamesAccepted", "False", "NameConflict", `${JSON.stringify(taken)} is already in use`),
      taken === undefined
        ? this.#condition(old, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
        : this.#condition(old, "Established", "False", "NotAccepted", "not all names are accepted"),
    ];
    return {
      conditions,
      acceptedNames: taken === undefined ? asObject(spec["names"]) : {},
      storedVersions: [...storedVersions],
    };
  }

  #condition(old: JsonObject, type: string, status: string, reason: string, message: string): JsonObject {
    const before = asArray(old["conditions"]).find((item) => at(item, "type") === type);
    const since = at(before, "status") === status ? at(before, "lastTransitionTime") : undefined;
    return { lastTransitionTime: since ?? timestamp(this.#deps.clock.now()), message, reason, status, type };
  }

  /** Deletes the objects of a terminating CRD, then removes its finalizer. */
  async #cleanUp(name: string, crd: KubeObject): Promise<void> {
    const { store, objects } = this.#deps;
    const resource = this.#served.get(name)?.[0]?.resource;
    for (const { object } of store.collection(name).list()) {
      if (resource === undefined || object.metadata.deletionTimestamp !== undefined) continue;
      const { namespace = "", name: instance = "" } = object.metadata;
      try {
        await objects.delete(resource, namespace, instance, {
          propagationPolicy: "Background",
          user: systemUser("crd-controller"),
        });
      } catch (error) {
        // Another writer was faster; its commit causes the next pass.
        if (!(error instanceof ApiError) || error.code !== "NotFound") throw error;
      }
    }
    if (store.collection(name).size > 0) return;
    const finalizers = (crd.metadata.finalizers ?? []).filter((item) => item !== CLEANUP);
    this.#write(withMeta(this.#get(name) ?? crd, { finalizers: finalizers.length === 0 ? undefined : finalizers }));
  }

  #write(crd: KubeObject): void {
    const resource = this.#deps.registry.forStorage(CRDS);
    if (resource !== undefined) this.#deps.objects.writeInternal(resource, crd);
  }
}
