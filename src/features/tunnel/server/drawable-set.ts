/** The number of times that a draw is repeated that gives nothing. With half of the elements of no use, one of 256 draws gives nothing. */
const DRAWS = 8;

/** Up to this size an element is looked for; a larger set remembers where each is. Most sets are those of hosts, with one agent each. */
const SMALL = 8;

/** A set from which elements are drawn at random, each with the same chance, in constant time. */
export class DrawableSet<T> implements Iterable<T> {
  #elements: T[] = [];
  /** Absent while the set is small. */
  #places: Map<T, number> | undefined;

  get size(): number {
    return this.#elements.length;
  }

  has(element: T): boolean {
    return this.#placeOf(element) !== undefined;
  }

  /** Returns false if the set has the element already. */
  add(element: T): boolean {
    if (this.#placeOf(element) !== undefined) return false;
    this.#places?.set(element, this.#elements.length);
    // A push into an empty array reserves room for many.
    if (this.#elements.length === 0) this.#elements = [element];
    else this.#elements.push(element);
    if (this.#elements.length > SMALL) this.#places ??= new Map(this.#elements.map((one, place) => [one, place]));
    return true;
  }

  /** Removes an element: the last one takes its place. */
  delete(element: T): void {
    const place = this.#placeOf(element);
    const last = this.#elements.at(-1);
    if (place === undefined || last === undefined) return;
    this.#elements[place] = last;
    this.#places?.set(last, place);
    this.#elements.pop();
    this.#places?.delete(element);
    if (this.#elements.length <= SMALL / 2) this.#places = undefined;
  }

  #placeOf(element: T): number | undefined {
    if (this.#places !== undefined) return this.#places.get(element);
    const place = this.#elements.indexOf(element);
    return place < 0 ? undefined : place;
  }

  /** Draws elements until `use` returns a value for one, and returns that value; `undefined` if `use` returns none for a few elements. `random` returns [0, 1). */
  draw<U>(use: (element: T) => U | undefined, random: () => number): U | undefined {
    for (let tries = 0; tries < DRAWS; tries += 1) {
      const element = this.#elements[Math.floor(random() * this.#elements.length)];
      const used = element === undefined ? undefined : use(element);
      if (used !== undefined) return used;
    }
    return undefined;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#elements[Symbol.iterator]();
  }
}
