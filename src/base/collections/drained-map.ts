/**
 * A map in order of insertion that keeps no memory of deleted values, for the reason that {@link LinkedSet} gives: a deleted value is taken
 * out of its cell, and an outgrown table of the runtime holds on to an empty cell. Keys are to be small. Setting an existing key keeps
 * its place.
 */
export class DrainedMap<K extends string | number | bigint, V> {
  /** An outgrown table holds on to empty cells only. */
  readonly #cells = new Map<K, { value: V | undefined }>();

  get size(): number {
    return this.#cells.size;
  }

  has(key: K): boolean {
    return this.#cells.has(key);
  }

  get(key: K): V | undefined {
    return this.#cells.get(key)?.value;
  }

  set(key: K, value: V): void {
    const cell = this.#cells.get(key);
    if (cell === undefined) this.#cells.set(key, { value });
    else cell.value = value;
  }

  /** Returns false for a key that is absent. */
  delete(key: K): boolean {
    const cell = this.#cells.get(key);
    if (cell !== undefined) cell.value = undefined;
    return this.#cells.delete(key);
  }

  /** The current values. */
  values(): V[] {
    return Array.from(this.#cells.values(), ({ value }) => value as V);
  }

  clear(): void {
    for (const cell of this.#cells.values()) cell.value = undefined;
    this.#cells.clear();
  }
}
