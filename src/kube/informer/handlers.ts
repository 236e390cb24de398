import type { Cached, Store } from "./store.ts";

/**
 * Receives changes. Handlers run one after the other and must be quick, for example mark an object dirty or add it to a queue. An error of
 * a handler is a bug and ends `Informer.run`.
 */
export interface InformerHandler<U> {
  /** `initial`: the object existed before the handler was added, or before the informer was synced. */
  onAdd?(object: U, info: { readonly initial: boolean }): void;
  onUpdate?(before: U, after: U): void;
  /** `finalStateUnknown`: the deletion itself was missed; `object` is the last state that was seen. */
  onDelete?(object: U, info: { readonly finalStateUnknown: boolean }): void;
}

/** Applies lists and events to the store and calls the handlers for each change. */
export class Changes<U extends Cached> {
  readonly #store: Store<U>;
  readonly #handlers = new Set<InformerHandler<U>>();

  constructor(store: Store<U>) {
    this.#store = store;
  }

  /** Adds a handler and calls it for every stored object; returns a function that removes it. */
  subscribe(handler: InformerHandler<U>): () => void {
    for (const object of this.#store.values()) handler.onAdd?.(object, { initial: true });
    this.#handlers.add(handler);
    return () => this.#handlers.delete(handler);
  }

  /**
   * Stores an object in its present state and calls the handlers. One with the version of the stored object is that object, unless `isRestored`: the
   * server's state was restored to an older one, after which versions are given again.
   */
  upsert(key: string, object: U, initial: boolean, isRestored = false): void {
    const known = this.#store.getByKey(key);
    if (
      !isRestored &&
      known !== undefined &&
      known.metadata.resourceVersion === object.metadata.resourceVersion &&
      known.metadata.uid === object.metadata.uid
    ) {
      return;
    }
    // Another uid under the same name: the old object's deletion was missed.
    if (known !== undefined && known.metadata.uid !== object.metadata.uid) this.remove(key, undefined);
    const before = this.#store.set(key, object);
    for (const handler of this.#handlers) {
      if (before === undefined) handler.onAdd?.(object, { initial });
      else handler.onUpdate?.(before, object);
    }
  }

  /** Removes a deleted object; `final` is its last state if the deletion itself was seen. */
  remove(key: string, final: U | undefined): void {
    const before = this.#store.delete(key);
    if (before === undefined) return;
    for (const handler of this.#handlers) {
      handler.onDelete?.(final ?? before, { finalStateUnknown: final === undefined });
    }
  }
}
