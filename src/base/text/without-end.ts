/**
 * The text without the same character at its end, however often it stands there. A regular expression would try again from each of them, in
 * the middle of the text too. Pure.
 */
export function withoutEnd(text: string, character: string): string {
  let end = text.length;
  while (end > 0 && text[end - 1] === character) end -= 1;
  return text.slice(0, end);
}
