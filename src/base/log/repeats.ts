/** The maximum number of keys that are remembered. The oldest key is forgotten first; its next text counts as new. */
export const MAX_REMEMBERED = 1024;

/**
 * Distinguishes new texts from repeated ones: a fault that repeats is logged when it begins and when it changes, and not at each
 * check.
 *
 * ```ts
 * if (repeats.isNew(block.name, error.message)) log.warn("AddressBlock is not valid", { block: block.name, error: error.message });
 * ```
 */
export class Repeats {
  readonly #logged = new Map<string, string>();

  /** Returns true if `text` differs from the last text of the key. Remembers it. */
  isNew(key: string, text: string): boolean {
    const known = this.#logged.get(key);
    this.#logged.delete(key);
    this.#logged.set(key, text);
    if (this.#logged.size > MAX_REMEMBERED) {
      const oldest = this.#logged.keys().next();
      if (oldest.done !== true) this.#logged.delete(oldest.value);
    }
    return known !== text;
  }

  /** Forgets a key whose fault has ended: its next text is new. True if a text was remembered. */
  forget(key: string): boolean {
    return this.#logged.delete(key);
  }

  /** Forgets all keys that are not in `keys`. */
  keepOnly(keys: { has(key: string): boolean }): void {
    for (const key of this.#logged.keys()) if (!keys.has(key)) this.#logged.delete(key);
  }
}
