/** Keys that are remembered; the oldest is forgotten first, and then said once more. */
export const MAX_REMEMBERED = 1024;

/**
 * Tells what is new from what is said again: something that repeats is logged when it begins and when it changes, and not at each
 * look.
 *
 * ```ts
 * if (repeats.isNew(block.name, error.message)) log.warn("AddressBlock is not valid", { block: block.name, error: error.message });
 * ```
 */
export class Repeats {
  readonly #logged = new Map<string, string>();

  /** Whether `text` is not what was said of the key before; from now on it is. */
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

  /** Forgets a key, for it is well again: what is said of it next is news. True when something was said of it. */
  forget(key: string): boolean {
    return this.#logged.delete(key);
  }

  /** Forgets all keys but these. */
  keepOnly(keys: { has(key: string): boolean }): void {
    for (const key of this.#logged.keys()) if (!keys.has(key)) this.#logged.delete(key);
  }
}
