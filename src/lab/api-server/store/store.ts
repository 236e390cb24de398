import { type KubeObject, withMeta } from "../object/meta.ts";
import { Collection } from "./collection.ts";
import { Entry, keyOf, type StoreEvent } from "./entry.ts";

/** Called after each commit, for the server's own controllers. */
export type CommitListener = (collection: string, event: StoreEvent) => void;

/** All objects of the server, with one revision counter. Writes are synchronous: nothing happens between check and commit. */
export class Store {
  readonly #collections = new Map<string, Collection>();
  readonly #listeners = new Set<CommitListener>();
  readonly #historyLimit: number;
  #revision = 1;

  constructor(init: { readonly historyLimit: number }) {
    this.#historyLimit = init.historyLimit;
  }

  /** The revision of the last commit. */
  get revision(): number {
    return this.#revision;
  }

  /** The collection of that name; an empty collection if it is new. Names come from served resources only. */
  collection(name: string): Collection {
    let found = this.#collections.get(name);
    if (found === undefined) {
      found = new Collection(name, this.#historyLimit, this.#revision);
      this.#collections.set(name, found);
    }
    return found;
  }

  /** Names of the collections that have objects. */
  names(): string[] {
    return [...this.#collections.values()]
      .filter((collection) => collection.size > 0)
      .map((collection) => collection.name);
  }

  onCommit(listener: CommitListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Stores a new object or a new state; the caller has checked it. Returns it with its resourceVersion. */
  write(collection: string, object: KubeObject): Entry {
    const target = this.collection(collection);
    const key = keyOf(object.metadata.namespace ?? "", object.metadata.name ?? "");
    const previous = target.get(key);
    const entry = this.#stamp(key, object);
    this.#commit(target, {
      type: previous === undefined ? "ADDED" : "MODIFIED",
      revision: entry.revision,
      entry,
      previous,
    });
    return entry;
  }

  /** Removes an object. Returns its last state (`last`, or the stored one) with the revision of the deletion. */
  remove(collection: string, key: string, last?: KubeObject): Entry | undefined {
    const target = this.collection(collection);
    const previous = target.get(key);
    if (previous === undefined) return undefined;
    const entry = this.#stamp(key, last ?? previous.object);
    this.#commit(target, { type: "DELETED", revision: entry.revision, entry, previous });
    return entry;
  }

  /** Stores many new objects: quickly and without history, while the collection has no watches. */
  load(collection: string, objects: readonly KubeObject[]): void {
    const target = this.collection(collection);
    if (target.watched) {
      for (const object of objects) this.write(collection, object);
      return;
    }
    const entries = objects.map((object) =>
      this.#stamp(keyOf(object.metadata.namespace ?? "", object.metadata.name ?? ""), object),
    );
    target.load(entries, this.#revision);
    for (const entry of entries) {
      for (const listener of this.#listeners)
        listener(collection, { type: "ADDED", revision: entry.revision, entry, previous: undefined });
    }
  }

  /** Drops all history: resuming an earlier watch or chunked list gives 410. */
  compact(): void {
    for (const collection of this.#collections.values()) collection.compact(this.#revision);
  }

  /** Drops the changes up to a revision, as kube-apiserver does with those that are older than five minutes. */
  forget(revision: number): void {
    for (const collection of this.#collections.values()) collection.forget(revision);
  }

  #stamp(key: string, object: KubeObject): Entry {
    this.#revision += 1;
    return new Entry(key, this.#revision, withMeta(object, { resourceVersion: String(this.#revision) }));
  }

  #commit(target: Collection, event: StoreEvent): void {
    target.commit(event);
    for (const listener of this.#listeners) listener(target.name, event);
  }
}
