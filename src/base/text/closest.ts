/** The most edits between a word and the known one that is suggested for it. */
const MAX_EDITS = 2;

/**
 * The known word that a mistyped one may mean: the one with the fewest edits, which are characters that are added, dropped, replaced or swapped
 * with the next. `undefined` if more than two edits are needed, or more than one for each two characters of the word. Of several
 * as close, it is the first. The time grows with the product of both lengths.
 */
export function closestWord(word: string, known: Iterable<string>): string | undefined {
  let closest: string | undefined;
  let fewest = Math.min(MAX_EDITS, Math.floor(word.length / 2)) + 1;
  for (const candidate of known) {
    if (Math.abs(candidate.length - word.length) >= fewest) continue;
    const edits = editsBetween(word, candidate);
    if (edits >= fewest) continue;
    closest = candidate;
    fewest = edits;
  }
  return closest;
}

/** The number of edits between two words: their optimal string alignment distance. */
function editsBetween(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwap ? (beforeLast[j - 2] ?? 0) + 1 : replaced;
      row.push(Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, replaced, swapped));
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length] ?? 0;
}
