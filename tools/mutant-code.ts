/** Small changes of code that its tests should notice. */

/** One change of a file. */
export interface Mutant {
  /** Offset of the changed characters, and the characters before and after the change. */
  readonly at: number;
  readonly from: string;
  readonly to: string;
  /** Both from 1. */
  readonly line: number;
  readonly column: number;
}

/** Operators with what they become. The formatter writes spaces around them, which types and arrows do not have. */
const OPERATORS: readonly (readonly [from: string, to: string])[] = [
  [" === ", " !== "],
  [" !== ", " === "],
  [" && ", " || "],
  [" || ", " && "],
  [" < ", " <= "],
  [" <= ", " < "],
  [" > ", " >= "],
  [" >= ", " > "],
  [" + ", " - "],
  [" - ", " + "],
  [" += ", " -= "],
  [" -= ", " += "],
  ["return true", "return false"],
  ["return false", "return true"],
  [".some(", ".every("],
  [".every(", ".some("],
];
/** A negation of a value: after a bracket, a space or another operator. */
const NEGATION = /[\s(=&|?:]!(?=[\w(])/g;
/** Comments, strings, templates without a value in them, and expressions that begin where a value may stand: nothing in them is changed. */
const NO_CODE =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`$]*`|(?<=[(,=:]\s{0,2})\/(?![/*])(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//g;

/** Pure: the code with spaces in place of what is no code, of the same length. */
function blanked(code: string): string {
  return code.replaceAll(NO_CODE, (text) => text.replaceAll(/[^\n]/g, "\0"));
}

/** Pure: every change of the code, in the order of the places. */
export function mutantsOf(code: string): readonly Mutant[] {
  const text = blanked(code);
  const found: { readonly at: number; readonly from: string; readonly to: string }[] = [];
  for (const [from, to] of OPERATORS)
    for (let at = text.indexOf(from); at >= 0; at = text.indexOf(from, at + 1)) found.push({ at, from, to });
  for (const { index } of text.matchAll(NEGATION)) found.push({ at: index + 1, from: "!", to: "" });
  return found
    .sort((one, other) => one.at - other.at)
    .map((change) => {
      const before = code.slice(0, change.at + (change.from.startsWith(" ") ? 1 : 0));
      const line = before.split("\n").length;
      return { ...change, line, column: before.length - before.lastIndexOf("\n") };
    });
}

/** Pure: the code with the change. Throws an `Error` if it has something else at that place. */
export function mutated(code: string, { at, from, to }: Pick<Mutant, "at" | "from" | "to">): string {
  if (!code.startsWith(from, at)) throw new Error(`there is no ${JSON.stringify(from)} at ${at}`);
  return code.slice(0, at) + to + code.slice(at + from.length);
}
