/**
 * A map in order of insertion that keeps no memory of deleted values, for the reason that {@link LinkedSet} gives: a deleted value is
 * removed from its cell, so that an outgrown table of the runtime keeps only an empty cell in memory. Keys should be small. Setting an
 * existing key keeps its place.
 */
export class DrainedMap<K extends string | number | bigint, V> {
  /** An outgrown table keeps only empty cells in memory. */
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
