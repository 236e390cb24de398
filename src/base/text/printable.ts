/**
 * Control characters (C0, DEL, C1), invisible format characters, among them those that change the direction of writing, line and paragraph
 * separators, and halves of surrogate pairs.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/**
 * The text as part of one line: each character that could begin a line, draw on a terminal, hide text or reverse it is escaped as in JSON
 * (`\n`, `\u001b`). Backslashes stay as they are, so that paths are read as they are. The result has no byte below 0x20. Pure.
 */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, escaped);
}

/** The stack of a bug: its message on one line, then its frames, a line for each. */
export function printableStack(error: unknown): string {
  if (!(error instanceof Error)) return printable(String(error));
  const { message, stack = `${error.name}: ${message}` } = error;
  const at = message === "" ? -1 : stack.indexOf(message);
  const end = at < 0 ? 0 : at + message.length;
  const [rest = "", ...frames] = stack.slice(end).split("\n");
  return [stack.slice(0, end) + rest, ...frames].map(printable).join("\n");
}

function escaped(character: string): string {
  // A character beyond U+FFFF has two units.
  return SHORT[character] ?? character.split("").map(unitOf).join("");
}

function unitOf(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
