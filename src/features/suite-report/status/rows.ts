/** The maximum number of rows of each list; further ones are counted. */
export const MAX_ROWS = 20;

/** The maximum number of programs that are named in a row. */
const MAX_NAMES = 5;

/** Some rows of a list, and the number of rows that are not shown. */
export interface Rows<T> {
  readonly rows: readonly T[];
  readonly more: number;
}

/** The first rows of a list, at most {@link MAX_ROWS}, and the number of the others. */
export function rowsOf<T>(all: readonly T[]): Rows<T> {
  return { rows: all.slice(0, MAX_ROWS), more: Math.max(0, all.length - MAX_ROWS) };
}

/** All of a few; of many the first, and how many more. */
export function namesOf(all: readonly { readonly name: string }[]): string {
  const names = all.slice(0, MAX_NAMES).map(({ name }) => name);
  const more = all.length - names.length;
  return `${names.join(", ")}${more === 0 ? "" : ` and ${more} more`}`;
}

/** A message without the names of objects, so that equal ones are counted together. */
export function withoutNames(text: string): string {
  return text.replaceAll(/"[^"]*"?|[a-z0-9-]+(?:\/[a-z0-9.:/-]+)?/g, (word) =>
    word.startsWith('"') || word.includes("/") ? "_" : word.replaceAll(/\d+/g, "_"),
  );
}

/** Orders texts by code point. */
export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
