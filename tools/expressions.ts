/**
 * The regular expressions in a source. A scanner that knows strings, templates, comments and where an expression can begin; the checkout's
 * compiler has no interface for it.
 */

/** One literal. */
export interface Expression {
  readonly source: string;
  readonly flags: string;
  /** From 1. */
  readonly line: number;
}

/** The bound of the texts that an expression reads. */
export interface Bound {
  /** A constant of the file. */
  readonly bound: string;
  /** The code that cuts or refuses a longer text by it. */
  readonly by: string;
}

/** Returns true if code has the constant, with at most `max`, and what cuts texts by it. Pure. */
export function isBounded(code: string, { bound, by }: Bound, max: number): boolean {
  const [, rest = ""] = code.split(`const ${bound} = `);
  const [, digits = ""] = /^(\d[\d_]*);/.exec(rest) ?? [];
  return digits !== "" && Number(digits.replaceAll("_", "")) <= max && code.includes(by);
}

/** Words after which a slash begins an expression: what follows is an operand. */
const BEFORE_OPERAND = new Set(
  "return typeof case in of delete void throw new else do instanceof await yield extends".split(" "),
);
const WORD = /[\w$\u0080-\uffff]/;

/** The regular expression literals of TypeScript code, in order. Pure. */
export function expressionsOf(code: string): readonly Expression[] {
  return new Scanner(code).scan();
}

/** The number of times that code makes an expression of a text: `new RegExp(`. Pure. */
export function madeExpressions(code: string): number {
  const scanner = new Scanner(code);
  scanner.scan();
  return scanner.made;
}

class Scanner {
  readonly #code: string;
  readonly #found: Expression[] = [];
  /** For each open template the number of braces that are open in its expression. */
  readonly #templates: number[] = [];
  #at = 0;
  /** The last token: a word, a sign, or `)` in the place of a literal. */
  #before = "";
  made = 0;

  constructor(code: string) {
    this.#code = code;
  }

  scan(): readonly Expression[] {
    while (this.#at < this.#code.length) this.#token();
    return this.#found;
  }

  #token(): void {
    const char = this.#code.charAt(this.#at);
    const next = this.#code.charAt(this.#at + 1);
    if (/\s/.test(char)) this.#at += 1;
    else if (char === "/" && next === "/") this.#skipPast("\n");
    else if (char === "/" && next === "*") this.#skipPast("*/");
    else if (char === '"' || char === "'") this.#string(char);
    else if (char === "`") this.#template();
    else if (char === "/" && this.#isOperand()) this.#expression();
    else if (WORD.test(char)) this.#word();
    else this.#sign(char);
  }

  #skipPast(end: string): void {
    const at = this.#code.indexOf(end, this.#at + 2);
    this.#at = at < 0 ? this.#code.length : at + end.length;
  }

  #string(quote: string): void {
    this.#at += 1;
    while (this.#at < this.#code.length && this.#code[this.#at] !== quote)
      this.#at += this.#code[this.#at] === "\\" ? 2 : 1;
    this.#at += 1;
    this.#before = ")";
  }

  /** A template up to its end, or to the next expression in it. */
  #template(): void {
    this.#at += 1;
    while (this.#at < this.#code.length) {
      const char = this.#code[this.#at];
      if (char === "`") {
        this.#at += 1;
        this.#before = ")";
        return;
      }
      if (char === "$" && this.#code[this.#at + 1] === "{") {
        this.#at += 2;
        this.#templates.push(0);
        this.#before = "{";
        return;
      }
      this.#at += char === "\\" ? 2 : 1;
    }
  }

  #isOperand(): boolean {
    if (BEFORE_OPERAND.has(this.#before)) return true;
    return this.#before === "" || !(WORD.test(this.#before) || [")", "]", "}"].includes(this.#before));
  }

  #expression(): void {
    const start = this.#at + 1;
    let isInClass = false;
    let at = start;
    while (isInClass || this.#code[at] !== "/") {
      const char = this.#code[at];
      if (char === undefined || char === "\n")
        throw new Error(`an expression without an end: ${this.#code.slice(this.#at, at)}`);
      if (char === "[") isInClass = true;
      else if (char === "]") isInClass = false;
      at += char === "\\" ? 2 : 1;
    }
    const [flags = ""] = /^[a-z]*/.exec(this.#code.slice(at + 1, at + 12)) ?? [];
    const line = this.#code.slice(0, start).split("\n").length;
    this.#found.push({ source: this.#code.slice(start, at), flags, line });
    this.#at = at + 1 + flags.length;
    this.#before = ")";
  }

  #word(): void {
    const start = this.#at;
    while (WORD.test(this.#code.charAt(this.#at))) this.#at += 1;
    const word = this.#code.slice(start, this.#at);
    if (word === "RegExp" && this.#before === "new") this.made += 1;
    // The name of a member is no keyword.
    this.#before = this.#before === "." ? "member" : word;
  }

  #sign(char: string): void {
    this.#at += 1;
    const open = this.#templates.at(-1);
    if (open !== undefined && char === "{") this.#templates[this.#templates.length - 1] = open + 1;
    else if (open === 0 && char === "}") {
      this.#templates.pop();
      this.#at -= 1;
      this.#template();
      return;
    } else if (open !== undefined && char === "}") this.#templates[this.#templates.length - 1] = open - 1;
    this.#before = char;
  }
}
