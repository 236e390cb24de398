/** A map from keys to texts. Most keys have one text, which is kept without a set: a set takes 200 bytes. */
export class CompactMultimap<K> {
  readonly #texts = new Map<K, string | Set<string>>();

  has(key: K): boolean {
    return this.#texts.has(key);
  }

  /** Empty for an unknown key. */
  get(key: K): Iterable<string> {
    const texts = this.#texts.get(key);
    if (texts === undefined) return [];
    return typeof texts === "string" ? [texts] : texts;
  }

  add(key: K, text: string): void {
    const texts = this.#texts.get(key);
    if (texts === undefined || texts === text) this.#texts.set(key, text);
    else if (typeof texts === "string") this.#texts.set(key, new Set([texts, text]));
    else texts.add(text);
  }

  remove(key: K, text: string): void {
    const texts = this.#texts.get(key);
    if (texts === text) this.#texts.delete(key);
    else if (texts instanceof Set) {
      texts.delete(text);
      const [only] = texts;
      if (texts.size === 1 && only !== undefined) this.#texts.set(key, only);
    }
  }
}
