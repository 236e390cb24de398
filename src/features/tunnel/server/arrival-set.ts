/** Up to this size the set is an array, in which an element is looked for. Most sets are those of hosts, with one agent each. */
const SMALL = 8;

/** A set that keeps the order in which its elements came. Whoever leaves and comes again is the last. */
export class ArrivalSet<T> implements Iterable<T> {
  #elements: T[] | Set<T> = [];

  get size(): number {
    return Array.isArray(this.#elements) ? this.#elements.length : this.#elements.size;
  }

  /** Returns false if the set has the element already. */
  add(element: T): boolean {
    const elements = this.#elements;
    if (!Array.isArray(elements)) {
      const before = elements.size;
      return elements.add(element).size > before;
    }
    if (elements.includes(element)) return false;
    // A spread reserves room for more.
    const longer = elements.length === 0 ? [element] : elements.concat([element]);
    this.#elements = longer.length > SMALL ? new Set(longer) : longer;
    return true;
  }

  delete(element: T): void {
    if (Array.isArray(this.#elements)) this.#elements = this.#elements.filter((one) => one !== element);
    else this.#elements.delete(element);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#elements[Symbol.iterator]();
  }
}
