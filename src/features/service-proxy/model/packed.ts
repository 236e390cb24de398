const NONE: readonly never[] = [];
const NO_KEYS: ReadonlySet<never> = new Set<never>();

/** The list in as much memory as it has elements, for what is kept: lists that were filled one by one have room for 16 more. */
export function packed<T>(list: readonly T[]): readonly T[] {
  return list.length === 0 ? NONE : list.slice();
}

/** A set of these; an empty one, which takes 200 bytes, is shared. */
export function packedSet<T>(keys: Iterable<T>): ReadonlySet<T> {
  const set = new Set(keys);
  return set.size === 0 ? NO_KEYS : set;
}

/** So many texts are remembered to be shared. */
const MAX_SHARED = 8192;

/** Gives one text for equal ones, such as names of nodes, which each object would otherwise bring in memory of its own. */
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

/** One text of several, in memory of its own: what `+` makes keeps its parts until somebody reads it, and a node for each. */
export function flatText(...parts: readonly string[]): string {
  return parts.join("");
}
