/** Listeners for changes of the configuration. */
export class Listeners {
  readonly #listeners = new Set<() => void>();

  add(listener: () => void): Disposable {
    // The listener is wrapped, so that a listener that is added twice is called twice.
    const own = (): void => listener();
    this.#listeners.add(own);
    return { [Symbol.dispose]: () => void this.#listeners.delete(own) };
  }

  notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
