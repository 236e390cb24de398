import { apiVersionOf } from "../object/meta.ts";
import type { Schema } from "../schema/index.ts";
import type { ResourceDef } from "./types.ts";

/** Every served resource, found by path or by kind, and the definitions that their schemas refer to. */
export class Registry {
  readonly definitions: Map<string, Schema>;
  readonly #byPath = new Map<string, ResourceDef>();
  readonly #byKind = new Map<string, ResourceDef>();
  #generation = 0;

  constructor(definitions: Map<string, Schema>, resources: readonly ResourceDef[]) {
    this.definitions = definitions;
    for (const resource of resources) this.add(resource);
  }

  /** Grows with each change: documents from an older generation (discovery, OpenAPI) are stale. */
  get generation(): number {
    return this.#generation;
  }

  /** Serves a resource; replaces one of the same group, version and plural. */
  add(resource: ResourceDef): void {
    const groupVersion = apiVersionOf(resource.group, resource.version);
    this.#byPath.set(`${groupVersion}/${resource.plural}`, resource);
    this.#byKind.set(`${groupVersion}/${resource.kind}`, resource);
    this.#generation += 1;
  }

  /** Stops serving a resource. */
  remove(resource: ResourceDef): void {
    const groupVersion = apiVersionOf(resource.group, resource.version);
    this.#byPath.delete(`${groupVersion}/${resource.plural}`);
    this.#byKind.delete(`${groupVersion}/${resource.kind}`);
    this.definitions.delete(resource.definition);
    this.#generation += 1;
  }

  find(group: string, version: string, plural: string): ResourceDef | undefined {
    return this.#byPath.get(`${apiVersionOf(group, version)}/${plural}`);
  }

  findKind(apiVersion: string, kind: string): ResourceDef | undefined {
    return this.#byKind.get(`${apiVersion}/${kind}`);
  }

  /** One version of a collection's kind: the stored version if it is served, else any version. */
  forStorage(storage: string): ResourceDef | undefined {
    let found: ResourceDef | undefined;
    for (const resource of this.#byPath.values()) {
      if (resource.storage !== storage) continue;
      if (resource.storageApiVersion === apiVersionOf(resource.group, resource.version)) return resource;
      found ??= resource;
    }
    return found;
  }

  list(): ResourceDef[] {
    return [...this.#byPath.values()];
  }
}
