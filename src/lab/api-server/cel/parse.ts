import { errorAt } from "./errors.ts";
import { type Token, tokenize } from "./lexer.ts";
import type { Expr, FoldKind } from "./syntax.ts";

/** The bounds on an expression: of its text and of its nesting. */
export const MAX_SOURCE_LENGTH = 100_000;
const MAX_DEPTH = 100;

/** Words that cannot be identifiers (cel-spec, langdef: reserved). */
const RESERVED = new Set(
  "as break const continue else false for function if import in let loop null package namespace return true var void while".split(
    " ",
  ),
);

/** Binary operators by precedence. */
const LEVELS: readonly (readonly string[])[] = [
  ["==", "!=", "<", "<=", ">", ">=", "in"],
  ["+", "-"],
  ["*", "/", "%"],
];

const MIN_INT = -(2n ** 63n);
const MAX_INT = 2n ** 63n - 1n;

/** Parses an expression. Throws CelError `syntax`. */
export function parse(source: string): Expr {
  if (source.length > MAX_SOURCE_LENGTH) {
    throw errorAt(
      "syntax",
      "",
      0,
      `expression code point size exceeds limit: size: ${source.length}, limit ${MAX_SOURCE_LENGTH}`,
    );
  }
  return new Parser(source).whole();
}

class Parser {
  readonly #source: string;
  readonly #tokens: readonly Token[];
  #next = 0;
  #depth = 0;

  constructor(source: string) {
    this.#source = source;
    this.#tokens = tokenize(source);
  }

  whole(): Expr {
    const expr = this.#expression();
    if (this.#token.kind !== "end") throw this.#unexpected();
    return expr;
  }

  get #token(): Token {
    return this.#tokens[this.#next] ?? { kind: "end", text: "<EOF>", at: this.#source.length };
  }

  #unexpected(): Error {
    const { text, at, kind } = this.#token;
    const what = kind === "end" ? "mismatched input '<EOF>'" : `unexpected '${text}'`;
    return errorAt("syntax", this.#source, at, `Syntax error: ${what}`);
  }

  #take(): Token {
    const token = this.#token;
    this.#next += 1;
    return token;
  }

  #isSign(text: string): boolean {
    const token = this.#token;
    return (token.kind === "sign" || (text === "in" && token.kind === "ident")) && token.text === text;
  }

  #accept(text: string): Token | undefined {
    return this.#isSign(text) ? this.#take() : undefined;
  }

  #need(text: string): Token {
    if (!this.#isSign(text)) throw this.#unexpected();
    return this.#take();
  }

  #expression(): Expr {
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) {
      throw errorAt("syntax", this.#source, this.#token.at, `expression recursion limit exceeded: ${MAX_DEPTH}`);
    }
    const test = this.#or();
    const mark = this.#accept("?");
    let expr = test;
    if (mark !== undefined) {
      const yes = this.#or();
      this.#need(":");
      expr = { op: "choose", at: mark.at, test, yes, no: this.#expression() };
    }
    this.#depth -= 1;
    return expr;
  }

  #or(): Expr {
    let left = this.#and();
    for (let sign = this.#accept("||"); sign !== undefined; sign = this.#accept("||")) {
      left = { op: "or", at: sign.at, left, right: this.#and() };
    }
    return left;
  }

  #and(): Expr {
    let left = this.#binary(0);
    for (let sign = this.#accept("&&"); sign !== undefined; sign = this.#accept("&&")) {
      left = { op: "and", at: sign.at, left, right: this.#binary(0) };
    }
    return left;
  }

  #binary(level: number): Expr {
    const operators = LEVELS[level];
    if (operators === undefined) return this.#unary();
    let left = this.#binary(level + 1);
    for (;;) {
      const sign = operators.find((text) => this.#isSign(text));
      if (sign === undefined) return left;
      const { at } = this.#take();
      const name = sign === "in" ? "@in" : `_${sign}_`;
      left = { op: "call", at, name, target: undefined, args: [left, this.#binary(level + 1)] };
    }
  }

  #unary(): Expr {
    const sign = this.#accept("!") ?? this.#accept("-");
    if (sign === undefined) return this.#member(this.#primary());
    const operand = this.#token;
    if (sign.text === "-" && (operand.kind === "int" || operand.kind === "double")) {
      this.#next += 1;
      return this.#member(this.#number(operand, "-"));
    }
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) {
      throw errorAt("syntax", this.#source, sign.at, `expression recursion limit exceeded: ${MAX_DEPTH}`);
    }
    const arg = this.#unary();
    this.#depth -= 1;
    return { op: "call", at: sign.at, name: `${sign.text}_`, target: undefined, args: [arg] };
  }

  #member(start: Expr): Expr {
    let expr = start;
    for (;;) {
      const sign = this.#token;
      const dot = this.#accept(".") ?? this.#accept(".?");
      if (dot !== undefined) {
        expr = this.#dotted(expr, dot);
        continue;
      }
      const bracket = this.#accept("[") ?? this.#accept("[?");
      if (bracket === undefined) return expr;
      const index = this.#expression();
      this.#need("]");
      expr = { op: "index", at: sign.at, operand: expr, index, optional: bracket.text === "[?" };
    }
  }

  #dotted(operand: Expr, dot: Token): Expr {
    const name = this.#take();
    if (name.kind !== "ident" || ["false", "in", "null", "true"].includes(name.text)) {
      this.#next -= 1;
      throw this.#unexpected();
    }
    const open = dot.text === "." ? this.#accept("(") : undefined;
    if (open === undefined) return { op: "select", at: dot.at, operand, field: name.text, optional: dot.text === ".?" };
    const args = this.#items(")");
    return (
      this.#macro(operand, name.text, args, open.at) ?? {
        op: "call",
        at: open.at,
        name: name.text,
        target: operand,
        args,
      }
    );
  }

  /** Parses up to the closing token. Only a list may have a comma before it. */
  #items(end: ")" | "]"): Expr[] {
    const items: Expr[] = [];
    while (!this.#isSign(end)) {
      items.push(this.#expression());
      if (this.#accept(",") === undefined) break;
      if (end === ")" && this.#isSign(end)) throw this.#unexpected();
    }
    this.#need(end);
    return items;
  }

  #macro(range: Expr, name: string, args: readonly Expr[], at: number): Expr | undefined {
    const [variable, first, second] = args;
    const isOptional = name === "optMap" || name === "optFlatMap";
    const isFold = ["all", "exists", "exists_one", "existsOne", "filter", "map"].includes(name);
    const three = name === "map" && args.length === 3;
    if (!(isOptional || isFold) || !(args.length === 2 || three) || variable === undefined || first === undefined) {
      return undefined;
    }
    if (variable.op !== "ident") throw errorAt("syntax", this.#source, variable.at, "argument must be a simple name");
    if (isOptional) {
      return { op: "optMap", at, flat: name === "optFlatMap", range, variable: variable.name, body: first };
    }
    return {
      op: "fold",
      at,
      kind: (name === "existsOne" ? "exists_one" : name) as FoldKind,
      range,
      variable: variable.name,
      filter: three ? first : undefined,
      body: three ? (second ?? first) : first,
    };
  }

  #primary(): Expr {
    const token = this.#take();
    const { at, text } = token;
    switch (token.kind) {
      case "int":
      case "double":
        return this.#number(token, "");
      case "string":
        return { op: "literal", at, value: text };
      case "bytes":
        return { op: "literal", at, value: new TextEncoder().encode(text) };
      case "ident":
        return this.#named(token);
      case "sign":
        // A dot before a name means the root scope; there is no other scope here.
        if (text === "." && this.#token.kind === "ident") return this.#named(this.#take());
        if (text === "(") return this.#parenthesized();
        if (text === "[") return { op: "list", at, items: this.#items("]") };
        if (text === "{") return this.#map(at);
        break;
      case "uint":
        throw errorAt("syntax", this.#source, at, "unsigned numbers are not known to the lab's API server");
      case "end":
        break;
    }
    this.#next -= 1;
    throw this.#unexpected();
  }

  #parenthesized(): Expr {
    const inner = this.#expression();
    this.#need(")");
    return inner;
  }

  #number({ kind, text, at }: Token, sign: "" | "-"): Expr {
    if (kind === "double") return { op: "literal", at, value: Number(sign + text) };
    const value = sign === "-" ? -BigInt(text) : BigInt(text);
    if (value < MIN_INT || value > MAX_INT) throw errorAt("syntax", this.#source, at, "invalid int literal");
    return { op: "literal", at, value };
  }

  #named({ text, at }: Token): Expr {
    if (text === "true" || text === "false") return { op: "literal", at, value: text === "true" };
    if (text === "null") return { op: "literal", at, value: null };
    if (RESERVED.has(text)) throw errorAt("syntax", this.#source, at, `reserved identifier: ${text}`);
    const open = this.#accept("(");
    if (open === undefined) return { op: "ident", at, name: text };
    const args = this.#items(")");
    const [only] = args;
    if (text !== "has" || args.length !== 1) return { op: "call", at: open.at, name: text, target: undefined, args };
    if (only?.op !== "select" || only.optional) {
      throw errorAt("syntax", this.#source, only?.at ?? open.at, "invalid argument to has() macro");
    }
    return { op: "has", at: open.at, operand: only.operand, field: only.field };
  }

  #map(at: number): Expr {
    const entries: { key: Expr; value: Expr }[] = [];
    while (!this.#isSign("}")) {
      const key = this.#expression();
      this.#need(":");
      entries.push({ key, value: this.#expression() });
      if (this.#accept(",") === undefined) break;
    }
    this.#need("}");
    return { op: "map", at, entries };
  }
}
