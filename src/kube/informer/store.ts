import { objectKey } from "#kube/client";

/** The fields of an object that the store needs; a transform must keep them. */
export interface Cached {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string | undefined;
    readonly uid: string;
    readonly resourceVersion: string;
  };
}

/** Returns the index values of an object; an object without a value is not in this index. */
export type IndexFunction<U> = (object: U) => readonly string[];

/** Read access to an informer's objects. Objects are shared: do not change them. */
export interface StoreReader<U extends Cached> {
  readonly size: number;
  get(name: string, namespace?: string): U | undefined;
  /** The object with the key `namespace/name`, or `name` if it is cluster-scoped. */
  getByKey(key: string): U | undefined;
  /** All objects, without copying them into a list. */
  values(): IterableIterator<U>;
  keys(): IterableIterator<string>;
  list(): U[];
  /** The objects with `value` in the index `name`. Throws `RangeError` for an index that was not declared. */
  byIndex(name: string, value: string): U[];
  /** The values that occur in an index. Throws `RangeError` for an index that was not declared. */
  indexValues(name: string): string[];
}

class Index<U extends Cached> {
  readonly #valuesOf: IndexFunction<U>;
  readonly #keys = new Map<string, Set<string>>();

  constructor(valuesOf: IndexFunction<U>) {
    this.#valuesOf = valuesOf;
  }

  keys(value: string): Iterable<string> {
    return this.#keys.get(value) ?? [];
  }

  values(): string[] {
    return [...this.#keys.keys()];
  }

  change(key: string, before: U | undefined, after: U | undefined): void {
    if (before !== undefined) for (const value of this.#valuesOf(before)) this.#remove(value, key);
    if (after !== undefined) for (const value of this.#valuesOf(after)) this.#add(value, key);
  }

  #add(value: string, key: string): void {
    const keys = this.#keys.get(value);
    if (keys === undefined) this.#keys.set(value, new Set([key]));
    else keys.add(key);
  }

  #remove(value: string, key: string): void {
    const keys = this.#keys.get(value);
    keys?.delete(key);
    if (keys?.size === 0) this.#keys.delete(value);
  }
}

/** Objects by key, with indexes that always agree with them. Its size is bounded by the number of selected objects on the API server. */
export class Store<U extends Cached> implements StoreReader<U> {
  readonly #objects = new Map<string, U>();
  readonly #indexes = new Map<string, Index<U>>();

  constructor(indexers: Readonly<Record<string, IndexFunction<U>>> = {}) {
    for (const [name, valuesOf] of Object.entries(indexers)) this.#indexes.set(name, new Index(valuesOf));
  }

  get size(): number {
    return this.#objects.size;
  }

  get(name: string, namespace?: string): U | undefined {
    return this.getByKey(objectKey({ metadata: { name, namespace } }));
  }

  getByKey(key: string): U | undefined {
    return this.#objects.get(key);
  }

  values(): IterableIterator<U> {
    return this.#objects.values();
  }

  keys(): IterableIterator<string> {
    return this.#objects.keys();
  }

  list(): U[] {
    return [...this.#objects.values()];
  }

  byIndex(name: string, value: string): U[] {
    const objects: U[] = [];
    for (const key of this.#index(name).keys(value)) {
      const object = this.#objects.get(key);
      if (object !== undefined) objects.push(object);
    }
    return objects;
  }

  indexValues(name: string): string[] {
    return this.#index(name).values();
  }

  /** Stores an object; returns the object that it replaces. */
  set(key: string, object: U): U | undefined {
    const before = this.#objects.get(key);
    this.#objects.set(key, object);
    for (const index of this.#indexes.values()) index.change(key, before, object);
    return before;
  }

  /** Removes an object and returns it. */
  delete(key: string): U | undefined {
    const before = this.#objects.get(key);
    if (before === undefined) return undefined;
    this.#objects.delete(key);
    for (const index of this.#indexes.values()) index.change(key, before, undefined);
    return before;
  }

  #index(name: string): Index<U> {
    const index = this.#indexes.get(name);
    if (index === undefined)
      throw new RangeError(
        `there is no index "${name}"; the declared indexes are: ${[...this.#indexes.keys()].join(", ")}`,
      );
    return index;
  }
}
