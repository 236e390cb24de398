/**
 * Values by key, in the order of their coming, for many that come and go: a Map that does not keep what has left it, for the reason that
 * {@link Roster} gives. Keys are to be small; a value that is written anew keeps its place.
 */
export class Register<K extends string | number | bigint, V> {
  /** What an outgrown table holds on to is an empty box. */
  readonly #boxes = new Map<K, { value: V | undefined }>();

  get size(): number {
    return this.#boxes.size;
  }

  has(key: K): boolean {
    return this.#boxes.has(key);
  }

  get(key: K): V | undefined {
    return this.#boxes.get(key)?.value;
  }

  set(key: K, value: V): void {
    const box = this.#boxes.get(key);
    if (box === undefined) this.#boxes.set(key, { value });
    else box.value = value;
  }

  /** False where there is none. */
  delete(key: K): boolean {
    const box = this.#boxes.get(key);
    if (box !== undefined) box.value = undefined;
    return this.#boxes.delete(key);
  }

  /** Those that are here now. */
  values(): V[] {
    return Array.from(this.#boxes.values(), ({ value }) => value as V);
  }

  clear(): void {
    for (const box of this.#boxes.values()) box.value = undefined;
    this.#boxes.clear();
  }
}
