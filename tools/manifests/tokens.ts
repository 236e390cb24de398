import { ChartError } from "./error.ts";

/** The place of a part of a template, for messages. */
export interface Place {
  readonly file: string;
  /** From 1. */
  readonly line: number;
}

/** A text between actions, or an action `{{ }}` without its braces. */
export interface Piece extends Place {
  readonly kind: "text" | "action";
  readonly text: string;
}

/** A text, a number, a word, a variable with fields, fields, or punctuation. Only the last may follow without a space. */
const TOKEN =
  /([ \t\r\n]*)(?:("(?:[^"\\\p{Cc}]|\\["\\nt])*"|-?\d+(?![\w.])|[A-Za-z_]\w*|\$\w*(?:\.[A-Za-z_]\w*)*|(?:\.[A-Za-z_]\w*)+|\.)|(:=|[(),|]))/uy;
/** Keywords of Go templates. Those that are not carried out are refused. */
const KEYWORDS = ["if", "else", "end", "with", "range", "define", "template", "block", "break", "continue"];

/** Throws {@link ChartError} (`syntax`). */
export function syntaxFault({ file, line }: Place, what: string): never {
  throw new ChartError("syntax", `${file}:${line}: ${what}`);
}

/** Splits a text at its actions, and trims the white space that `{{-` and `-}}` trim. */
export function splitTemplate(file: string, text: string): Piece[] {
  const pieces: Piece[] = [];
  let [at, line, trims] = [0, 1, false];
  const pushText = (to: number, trimsEnd: boolean): void => {
    let part = text.slice(at, to);
    const start = line;
    line += newlines(part);
    if (trims) part = part.replace(/^[ \t\r\n]+/, "");
    if (trimsEnd) part = part.replace(/[ \t\r\n]+$/, "");
    pieces.push({ kind: "text", file, line: start, text: part });
  };
  for (;;) {
    const open = text.indexOf("{{", at);
    if (open < 0) break;
    const isTrimmed = /^-\s/.test(text.slice(open + 2, open + 4));
    pushText(open, isTrimmed);
    const from = open + 2 + (isTrimmed ? 1 : 0);
    // As in Go, a comment begins at once.
    const isComment = text.startsWith("/*", from + (isTrimmed ? 1 : 0));
    const close = isComment ? /\*\/(?:\s(-))?\}\}/g : /(?:\s(-))?\}\}/g;
    close.lastIndex = from;
    const match = close.exec(text);
    if (match === null) syntaxFault({ file, line }, "{{ without }}");
    const action = text.slice(from, match.index);
    if (!isComment) pieces.push({ kind: "action", file, line, text: action });
    line += newlines(action);
    trims = match[1] === "-";
    at = close.lastIndex;
  }
  pushText(text.length, false);
  return pieces;
}

function newlines(text: string): number {
  return text.split("\n").length - 1;
}

/** The tokens of one action. Throws {@link ChartError} (`syntax`). */
export class Tokens {
  readonly place: Place;
  readonly #tokens: readonly string[];
  #at = 0;

  constructor({ file, line, text }: Piece) {
    this.place = { file, line };
    const tokens: string[] = [];
    const end = text.trimEnd().length;
    let [at, needsSpace] = [0, false];
    while (at < end) {
      TOKEN.lastIndex = at;
      const [, space = "", value, mark] = TOKEN.exec(text) ?? [];
      const token = value ?? mark;
      if (token === undefined || (needsSpace && value !== undefined && space === ""))
        this.fail(`"${text.slice(at, at + 20).trim()}" is not known here`);
      tokens.push(token);
      needsSpace = value !== undefined || mark === ")";
      at = TOKEN.lastIndex;
    }
    this.#tokens = tokens;
  }

  fail(what: string): never {
    return syntaxFault(this.place, what);
  }

  /** The next token, or one after it; `undefined` at the end. */
  peek(ahead = 0): string | undefined {
    return this.#tokens[this.#at + ahead];
  }

  next(): string {
    const token = this.peek() ?? this.fail("the action ends too early");
    this.#at += 1;
    return token;
  }

  take(token: string): boolean {
    if (this.peek() !== token) return false;
    this.#at += 1;
    return true;
  }

  /** The keyword at this place, which is passed; `undefined` if there is none. */
  keyword(): string | undefined {
    return KEYWORDS.includes(this.peek() ?? "") ? this.next() : undefined;
  }

  /** A token of a pattern; `what` names it in the fault. */
  word(pattern: RegExp, what: string): string {
    const token = this.next();
    return pattern.test(token) ? token : this.fail(`"${token}" stands where ${what} is due`);
  }

  end(): void {
    if (this.peek() !== undefined) this.fail(`"${this.peek()}" is not known here`);
  }
}
