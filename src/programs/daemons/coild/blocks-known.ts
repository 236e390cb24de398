import { Deferred, unlessAborted } from "#base/async";

/** The moment at which this node's blocks are known. ADDs wait for it; DEL and CHECK do not. */
export class BlocksKnown {
  readonly #deferred = new Deferred();
  #isKnown = false;

  constructor() {
    // ADDs that wait get the rejection; if no ADD waits, the rejection is ignored.
    this.#deferred.promise.catch(() => undefined);
  }

  get promise(): Promise<void> {
    return this.#deferred.promise;
  }

  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** The blocks are known from now on. */
  note(): void {
    this.#isKnown = true;
    this.#deferred.resolve();
  }

  /** Resolves when the blocks are known. Rejects with the signal's reason. */
  wait({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    return unlessAborted(this.#deferred.promise, { signal });
  }
}
