import { ChartError } from "./error.ts";

/** The place of a part of a template, for messages. */
export interface Place {
  readonly file: string;
  /** From 1. */
  readonly line: number;
}

/** An expression. A pipeline is a call whose last argument is what stands before the bar. */
export type Expression = Place &
  (
    | { readonly kind: "literal"; readonly value: string | number | boolean }
    | { readonly kind: "dot" }
    | { readonly kind: "variable"; readonly name: string }
    | { readonly kind: "field"; readonly of: Expression; readonly name: string }
    | { readonly kind: "call"; readonly name: string; readonly args: readonly Expression[] }
  );

/** A part of a template. */
export type Part = Place &
  (
    | { readonly kind: "text"; readonly text: string }
    | { readonly kind: "print"; readonly value: Expression }
    | { readonly kind: "set"; readonly name: string; readonly value: Expression }
    | {
        readonly kind: "if";
        readonly when: Expression;
        readonly then: readonly Part[];
        readonly otherwise: readonly Part[];
      }
    | {
        readonly kind: "with";
        readonly value: Expression;
        readonly then: readonly Part[];
        readonly otherwise: readonly Part[];
      }
    | {
        readonly kind: "range";
        readonly over: Expression;
        /** Names of the variables: of the item, or of the key and the item. */
        readonly names: readonly string[];
        readonly then: readonly Part[];
        readonly otherwise: readonly Part[];
      }
  );

/** A file's own parts, and those that it defines by name. */
export interface Template {
  readonly parts: readonly Part[];
  readonly defined: ReadonlyMap<string, readonly Part[]>;
}

/** Expressions and blocks in each other. The parser is recursive. */
const MAX_DEPTH = 64;
/** A text, a number, a word, a variable with fields, fields, or punctuation. Only the last may follow without a space. */
const TOKEN =
  /([ \t\r\n]*)(?:("(?:[^"\\\p{Cc}]|\\["\\nt])*"|-?\d+(?![\w.])|[A-Za-z_]\w*|\$\w*(?:\.[A-Za-z_]\w*)*|(?:\.[A-Za-z_]\w*)+|\.)|(:=|[(),|]))/uy;
/** Keywords of Go templates. Those that are not carried out are refused. */
const KEYWORDS = ["if", "else", "end", "with", "range", "define", "template", "block", "break", "continue"];

interface Action extends Place {
  readonly kind: "action";
  readonly source: string;
}
type Piece = (Place & { readonly kind: "text"; readonly text: string }) | Action;

/** Reads a template. Throws {@link ChartError} (`syntax`) for anything that is not of the subset in docs/design/manifests.md. */
export function parseTemplate(file: string, text: string): Template {
  const pieces = split(file, text);
  const defined = new Map<string, readonly Part[]>();
  let at = 0;
  const fail = (place: Place, what: string): never => {
    throw new ChartError("syntax", `${place.file}:${place.line}: ${what}`);
  };
  /** Reads parts up to an `else` or `end`, which it leaves. */
  const readParts = (depth: number, opener: Place | undefined): Part[] => {
    if (depth > MAX_DEPTH) fail(opener ?? { file, line: 1 }, `more than ${MAX_DEPTH} blocks in each other`);
    const parts: Part[] = [];
    for (; at < pieces.length; at += 1) {
      const piece = pieces[at];
      if (piece === undefined) break;
      if (piece.kind === "text") {
        if (piece.text !== "") parts.push(piece);
        continue;
      }
      const tokens = new Tokens(piece);
      const keyword = tokens.keyword();
      if (keyword === "else" || keyword === "end") {
        if (opener === undefined) fail(piece, `{{ ${keyword} }} without a block`);
        return parts;
      }
      at += 1;
      const part = keyword === undefined ? tokens.statement() : readBlock(keyword, tokens, piece, depth);
      at -= 1;
      if (part !== undefined) parts.push(part);
    }
    return opener === undefined ? parts : fail(opener, "the block has no {{ end }}");
  };
  const readBlock = (keyword: string, tokens: Tokens, piece: Action, depth: number): Part | undefined => {
    const place = { file, line: piece.line };
    if (keyword === "define") {
      const name = tokens.string();
      tokens.end();
      if (depth > 0) fail(piece, "{{ define }} within a block");
      if (defined.has(name)) fail(piece, `"${name}" is defined twice`);
      defined.set(name, readParts(depth + 1, piece));
      finish(piece);
      return undefined;
    }
    if (keyword === "if") return { ...place, kind: "if", when: tokens.whole(), ...readBranches(piece, depth) };
    if (keyword === "with") return { ...place, kind: "with", value: tokens.whole(), ...readBranches(piece, depth) };
    if (keyword === "range") {
      const { names, over } = tokens.rangeOver();
      return { ...place, kind: "range", names, over, ...readBranches(piece, depth) };
    }
    return fail(piece, `{{ ${keyword} }} is not known here`);
  };
  const finish = (opener: Action): void => {
    const piece = pieces[at];
    const tokens = new Tokens(piece?.kind === "action" ? piece : fail(opener, "the block has no {{ end }}"));
    if (tokens.keyword() !== "end") fail(piece ?? opener, "{{ end }} is due here");
    tokens.end();
    at += 1;
  };
  const readBranches = (
    opener: Action,
    depth: number,
  ): { readonly then: readonly Part[]; readonly otherwise: readonly Part[] } => {
    const then = readParts(depth + 1, opener);
    const piece = pieces[at] as Action;
    const tokens = new Tokens(piece);
    if (tokens.keyword() === "end") {
      finish(opener);
      return { then, otherwise: [] };
    }
    at += 1;
    const more = tokens.keyword();
    if (more === "if") {
      const when = tokens.whole();
      const nested = readBranches(opener, depth + 1);
      return { then, otherwise: [{ file, line: piece.line, kind: "if", when, ...nested }] };
    }
    if (more !== undefined) fail(piece, `{{ else ${more} }} is not known here`);
    tokens.end();
    const otherwise = readParts(depth + 1, opener);
    finish(opener);
    return { then, otherwise };
  };
  const parts = readParts(0, undefined);
  return { parts, defined };
}

/** Splits a text at its actions, and trims the white space that `{{-` and `-}}` trim. */
function split(file: string, text: string): Piece[] {
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
    if (match === null) throw new ChartError("syntax", `${file}:${line}: {{ without }}`);
    const source = text.slice(from, match.index);
    if (!isComment) pieces.push({ kind: "action", file, line, source });
    line += newlines(source);
    trims = match[1] === "-";
    at = close.lastIndex;
  }
  pushText(text.length, false);
  return pieces;
}

function newlines(text: string): number {
  return text.split("\n").length - 1;
}

/** The tokens of one action. */
class Tokens {
  readonly #place: Place;
  readonly #tokens: readonly string[];
  #at = 0;

  constructor({ file, line, source }: Action) {
    this.#place = { file, line };
    const tokens: string[] = [];
    const end = source.trimEnd().length;
    let [at, needsSpace] = [0, false];
    while (at < end) {
      TOKEN.lastIndex = at;
      const [, space = "", value, mark] = TOKEN.exec(source) ?? [];
      const token = value ?? mark;
      if (token === undefined || (needsSpace && value !== undefined && space === ""))
        this.#fail(`"${source.slice(at, at + 20).trim()}" is not known here`);
      tokens.push(token);
      needsSpace = value !== undefined || mark === ")";
      at = TOKEN.lastIndex;
    }
    this.#tokens = tokens;
  }

  #fail(what: string): never {
    throw new ChartError("syntax", `${this.#place.file}:${this.#place.line}: ${what}`);
  }

  #next(): string {
    const token = this.#tokens[this.#at];
    this.#at += 1;
    return token ?? this.#fail("the action ends too early");
  }

  #take(token: string): boolean {
    if (this.#tokens[this.#at] !== token) return false;
    this.#at += 1;
    return true;
  }

  /** The keyword at this place, which is passed; `undefined` if there is none. */
  keyword(): string | undefined {
    const token = this.#tokens[this.#at];
    if (token === undefined || !KEYWORDS.includes(token)) return undefined;
    this.#at += 1;
    return token;
  }

  end(): void {
    if (this.#at < this.#tokens.length) this.#fail(`"${this.#tokens[this.#at]}" is not known here`);
  }

  string(): string {
    const token = this.#next();
    if (!token.startsWith('"')) this.#fail(`"${token}" stands where a text in double quotes is due`);
    return JSON.parse(token) as string;
  }

  /** An expression that fills the rest of the action. */
  whole(): Expression {
    const expression = this.#pipeline(0);
    this.end();
    return expression;
  }

  /** `$name := value`, or a value that is printed. */
  statement(): Part {
    const [first, second] = this.#tokens.slice(this.#at);
    if (first === undefined) this.#fail("the action is empty");
    if (second !== ":=") return { ...this.#place, kind: "print", value: this.whole() };
    const name = this.#variableName();
    this.#next();
    return { ...this.#place, kind: "set", name, value: this.whole() };
  }

  rangeOver(): { readonly names: readonly string[]; readonly over: Expression } {
    const names: string[] = [];
    if (this.#tokens.includes(":=")) {
      names.push(this.#variableName());
      if (this.#take(",")) names.push(this.#variableName());
      if (!this.#take(":=")) this.#fail(":= is due");
    }
    return { names, over: this.whole() };
  }

  #variableName(): string {
    const token = this.#next();
    if (!/^\$\w+$/.test(token)) this.#fail(`"${token}" stands where a variable is due`);
    return token;
  }

  #pipeline(depth: number): Expression {
    if (depth > MAX_DEPTH) this.#fail(`more than ${MAX_DEPTH} parentheses in each other`);
    let value = this.#command(depth);
    while (this.#take("|")) {
      const name = this.#next();
      if (!/^[A-Za-z]\w*$/.test(name)) this.#fail(`"${name}" stands where a function is due`);
      value = { ...this.#place, kind: "call", name, args: [...this.#args(depth), value] };
    }
    return value;
  }

  /** A function with its arguments, or one value. */
  #command(depth: number): Expression {
    const token = this.#tokens[this.#at] ?? this.#fail("a value is due");
    if (!/^[A-Za-z]\w*$/.test(token) || token === "true" || token === "false") return this.#operand(depth);
    this.#at += 1;
    return { ...this.#place, kind: "call", name: token, args: this.#args(depth) };
  }

  #args(depth: number): Expression[] {
    const args: Expression[] = [];
    for (;;) {
      const token = this.#tokens[this.#at];
      if (token === undefined || token === "|" || token === ")") return args;
      args.push(this.#operand(depth));
    }
  }

  #operand(depth: number): Expression {
    const token = this.#next();
    if (token === "(") {
      const value = this.#pipeline(depth + 1);
      return this.#take(")") ? value : this.#fail(") is due");
    }
    if (token.startsWith('"')) return { ...this.#place, kind: "literal", value: JSON.parse(token) as string };
    if (/^-?\d+$/.test(token)) return { ...this.#place, kind: "literal", value: Number(token) };
    if (token === "true" || token === "false") return { ...this.#place, kind: "literal", value: token === "true" };
    if (token === ".") return { ...this.#place, kind: "dot" };
    if (token.startsWith(".")) return this.#fields({ ...this.#place, kind: "dot" }, token.slice(1).split("."));
    if (token.startsWith("$")) {
      const [name = "", ...fields] = token.split(".");
      return this.#fields({ ...this.#place, kind: "variable", name }, fields);
    }
    return this.#fail(`"${token}" stands where a value is due; a function with arguments needs parentheses`);
  }

  #fields(of: Expression, names: readonly string[]): Expression {
    return names.reduce<Expression>((value, name) => ({ ...this.#place, kind: "field", of: value, name }), of);
  }
}
