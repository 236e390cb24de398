import { ApiError } from "../errors.ts";
import { asArray, asObject, withPath } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { keyOf, type StoreEvent } from "../store/entry.ts";
import type { LifecycleDeps } from "./deps.ts";
import { systemUser } from "./system-user.ts";

/** Empties a namespace that is being deleted, then removes its finalizer (Kubernetes namespace controller). */
export class NamespaceController {
  readonly #deps: LifecycleDeps;

  constructor(deps: LifecycleDeps) {
    this.#deps = deps;
  }

  /** Follows a commit: the deletion of a namespace, or of an object in a namespace that is being deleted. */
  observe(storage: string, event: StoreEvent): void {
    const { metadata } = event.entry.object;
    const name = storage === "namespaces" ? metadata.name : metadata.namespace;
    if (name === undefined || (storage !== "namespaces" && event.type !== "DELETED")) return;
    if (this.#get(name)?.metadata.deletionTimestamp === undefined) return;
    this.#deps.queue.add(`namespace ${name}`, () => this.#sync(name));
  }

  #get(name: string): KubeObject | undefined {
    return this.#deps.store.collection("namespaces").get(keyOf("", name))?.object;
  }

  async #sync(name: string): Promise<void> {
    const { store, registry } = this.#deps;
    for (const storage of store.names()) {
      const resource = registry.forStorage(storage);
      if (resource?.namespaced !== true) continue;
      for (const { object } of store.collection(storage).list(`${name}/`)) {
        if (object.metadata.deletionTimestamp === undefined)
          await this.#delete(resource, name, object.metadata.name ?? "");
      }
    }
    const left = store.names().some((storage) => store.collection(storage).list(`${name}/`).length > 0);
    const namespace = this.#get(name);
    if (!left && namespace?.metadata.deletionTimestamp !== undefined) this.#release(namespace);
  }

  #release(namespace: KubeObject): void {
    const resource = this.#deps.registry.find("", "v1", "namespaces");
    if (resource === undefined) return;
    const finalizers = asArray(asObject(namespace["spec"])["finalizers"]).filter((item) => item !== "kubernetes");
    this.#deps.objects.writeInternal(resource, withPath(namespace, ["spec", "finalizers"], finalizers) as KubeObject);
  }

  async #delete(resource: ResourceDef, namespace: string, name: string): Promise<void> {
    const user = systemUser("namespace-controller");
    try {
      await this.#deps.objects.delete(resource, namespace, name, { propagationPolicy: "Background", user });
    } catch (error) {
      // Another writer was faster; its commit causes the next pass.
      if (!(error instanceof ApiError) || error.code !== "NotFound") throw error;
    }
  }
}
