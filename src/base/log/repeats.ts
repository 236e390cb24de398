/** Keys that are remembered; the oldest is forgotten first, and then said once more. */
export const MAX_REMEMBERED = 1024;

/**
 * Tells what is new from what is said again: something that repeats is logged when it begins and when it changes, and not at each
 * look.
 *
 * ```ts
 * if (repeats.isNews(block.name, error.message)) log.warn("AddressBlock is not valid", { block: block.name, error: error.message });
 * ```
 */
export class Repeats {
  readonly #said = new Map<string, string>();

  /** Whether `text` is not what was said of the key before; from now on it is. */
  isNews(key: string, text: string): boolean {
    const known = this.#said.get(key);
    this.#said.delete(key);
    this.#said.set(key, text);
    if (this.#said.size > MAX_REMEMBERED) {
      const oldest = this.#said.keys().next();
      if (oldest.done !== true) this.#said.delete(oldest.value);
    }
    return known !== text;
  }

  /** Forgets a key, for it is well again: what is said of it next is news. True when something was said of it. */
  forget(key: string): boolean {
    return this.#said.delete(key);
  }

  /** Forgets all keys but these. */
  keepOnly(keys: { has(key: string): boolean }): void {
    for (const key of this.#said.keys()) if (!keys.has(key)) this.#said.delete(key);
  }
}
