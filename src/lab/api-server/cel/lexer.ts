import { errorAt } from "./errors.ts";

/** One token; `text` of strings and bytes is their value, without quotes and escapes. */
export interface Token {
  readonly kind: "int" | "uint" | "double" | "string" | "bytes" | "ident" | "sign" | "end";
  readonly text: string;
  readonly at: number;
}

const SPACE = /(?:[ \t\r\n\f]|\/\/[^\n]*)*/y;
const NUMBER = /0x[0-9a-fA-F]+[uU]?|(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)|\d+[uU]?/y;
const IDENT = /[A-Za-z_]\w*/y;
const SIGN = /==|!=|<=|>=|&&|\|\||\.\?|\[\?|[-+*/%<>!?:.,()[\]{}]/y;
const STRING = /([rR]?[bB]?|[bB][rR])("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')/y;
const RAW_STRING = /([rR][bB]?|[bB][rR])("""[\s\S]*?"""|'''[\s\S]*?'''|"[^"\r\n]*"|'[^'\r\n]*')/y;

/** The tokens of a source, an `end` last. Throws CelError `syntax`. */
export function tokenize(source: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    return pattern.exec(source);
  };
  for (;;) {
    at += match(SPACE)?.[0].length ?? 0;
    if (at >= source.length) return [...tokens, { kind: "end", text: "<EOF>", at }];
    const string = match(RAW_STRING) ?? match(STRING);
    const found = string ?? match(NUMBER) ?? match(IDENT) ?? match(SIGN);
    if (found === null) {
      throw errorAt("syntax", source, at, `Syntax error: token recognition error at: '${source.charAt(at)}'`);
    }
    tokens.push(string === null ? plain(found[0], at) : quoted(string, source, at));
    at += found[0].length;
  }
}

function plain(text: string, at: number): Token {
  if (/^[A-Za-z_]/.test(text)) return { kind: "ident", text, at };
  if (!/^\.?\d/.test(text)) return { kind: "sign", text, at };
  if (/^(0x[0-9a-fA-F]+|\d+)[uU]$/.test(text)) return { kind: "uint", text, at };
  return { kind: /^(0x|\d+$)/.test(text) ? "int" : "double", text, at };
}

function quoted(match: RegExpExecArray, source: string, at: number): Token {
  const [, prefix = "", literal = ""] = match;
  const quote = /^("""|''')/.test(literal) ? 3 : 1;
  const inner = literal.slice(quote, -quote);
  const text = /[rR]/.test(prefix) ? inner : unescaped(inner, source, at);
  return { kind: /[bB]/.test(prefix) ? "bytes" : "string", text, at };
}

const SIMPLE: Readonly<Record<string, string>> = {
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

function unescaped(text: string, source: string, at: number): string {
  return text.replace(
    /\\(?:([abfnrtv])|([\\?"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]?))/g,
    (whole, simple?: string, self?: string, x?: string, u?: string, long?: string, octal?: string) => {
      if (simple !== undefined) return SIMPLE[simple] ?? "";
      if (self !== undefined) return self;
      const code = Number.parseInt(x ?? u ?? long ?? octal ?? "", octal === undefined ? 16 : 8);
      if (!Number.isNaN(code) && code <= 0x10ffff) return String.fromCodePoint(code);
      throw errorAt("syntax", source, at, `Syntax error: token recognition error at: '${whole}'`);
    },
  );
}
