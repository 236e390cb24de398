const NONE: readonly never[] = [];
const NO_KEYS: ReadonlySet<never> = new Set<never>();

/**
 * A copy that takes no more memory than its elements, for data that is kept. An array that was filled one by one has unused room for 16
 * more elements.
 */
export function packed<T>(list: readonly T[]): readonly T[] {
  return list.length === 0 ? NONE : list.slice();
}

/** A set of these keys. An empty set takes 200 bytes, so all callers share one. */
export function packedSet<T>(keys: Iterable<T>): ReadonlySet<T> {
  const set = new Set(keys);
  return set.size === 0 ? NO_KEYS : set;
}

/** Maximum of texts that are kept to be shared. */
const MAX_SHARED = 8192;

/** Returns the same string for equal texts, such as names of nodes; otherwise each object has its own copy in memory. */
export class SharedTexts {
  readonly #texts = new Map<string, string>();

  get(text: string): string {
    const known = this.#texts.get(text);
    if (known !== undefined) return known;
    if (this.#texts.size === MAX_SHARED) this.#texts.clear();
    this.#texts.set(text, text);
    return text;
  }
}

/** Joins texts into one flat string. The result of `+` keeps its parts, and a node for each, until the string is read. */
export function flatText(...parts: readonly string[]): string {
  return parts.join("");
}
