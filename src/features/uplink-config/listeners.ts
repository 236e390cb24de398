/** Those who want to know of changes. */
export class Listeners {
  readonly #listeners = new Set<() => void>();

  add(listener: () => void): Disposable {
    // A function of its own, so that one that is added twice is two.
    const own = (): void => listener();
    this.#listeners.add(own);
    return { [Symbol.dispose]: () => void this.#listeners.delete(own) };
  }

  notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
