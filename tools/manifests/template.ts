import { FUNCTIONS, fault, fieldOf, isTrue, itemsOf, printed, type Value } from "./functions.ts";
import { type Piece, type Place, splitTemplate, syntaxFault, Tokens } from "./tokens.ts";

/** Blocks by name, of all files of a chart. */
export type Definitions = ReadonlyMap<string, Block>;

/** The text of parts of a template. */
export type Block = (context: Context) => string;

/** A file's own parts, and those that it defines by name. */
export interface Template {
  readonly parts: Block;
  readonly defined: Definitions;
}

/** The context with which parts are rendered. */
interface Context {
  readonly dot: Value;
  readonly variables: Map<string, Value>;
  readonly defined: Definitions;
  /** The progress of the whole rendering. */
  readonly progress: { steps: number; includes: number };
}

/** The value of an expression. */
type Evaluate = (context: Context) => Value;

/** Expressions and blocks in each other. The parser is recursive. */
const MAX_DEPTH = 64;
/** `include` within `include`. */
const MAX_INCLUDES = 32;
/** Parts and expressions of one rendering; a chart's own templates need a few thousand. */
const MAX_STEPS = 1_000_000;

/** Reads a template. Throws {@link ChartError} (`syntax`) for anything that is not of the subset in docs/design/manifests.md. */
export function parseTemplate(file: string, text: string): Template {
  return new Parser(file, splitTemplate(file, text)).template();
}

/**
 * Renders parts with a value for the dot. What Helm would print as an empty text, a field that is not there, is a fault here. Throws
 * {@link ChartError} (`render`).
 */
export function renderParts(parts: Block, defined: Definitions, dot: Value): string {
  return parts({ dot, variables: new Map([["$", dot]]), defined, progress: { steps: 0, includes: 0 } });
}

/** Counts the steps of a rendering, so that it ends. */
function counted<T>(place: Place, run: (context: Context) => T): (context: Context) => T {
  return (context) => {
    context.progress.steps += 1;
    if (context.progress.steps > MAX_STEPS) fault(place, `the template takes more than ${MAX_STEPS} steps`);
    return run(context);
  };
}

class Parser {
  readonly #file: string;
  readonly #pieces: readonly Piece[];
  readonly #defined = new Map<string, Block>();
  #at = 0;

  constructor(file: string, pieces: readonly Piece[]) {
    this.#file = file;
    this.#pieces = pieces;
  }

  template(): Template {
    return { parts: this.#block(0, undefined), defined: this.#defined };
  }

  /** Parts up to an `else` or `end`, which is left. Variables that they set are theirs. */
  #block(depth: number, opener: Place | undefined): Block {
    if (depth > MAX_DEPTH)
      syntaxFault(opener ?? { file: this.#file, line: 1 }, `more than ${MAX_DEPTH} blocks in each other`);
    const parts: Block[] = [];
    for (let piece = this.#pieces[this.#at]; piece !== undefined; piece = this.#pieces[this.#at]) {
      const { kind, text } = piece;
      const tokens = kind === "text" ? undefined : new Tokens(piece);
      const keyword = tokens?.keyword();
      if (keyword === "else" || keyword === "end") {
        if (opener === undefined) syntaxFault(piece, `{{ ${keyword} }} without a block`);
        return within(parts);
      }
      this.#at += 1;
      if (tokens === undefined) parts.push(() => text);
      else parts.push(keyword === undefined ? statement(tokens) : this.#keyword(keyword, tokens, depth));
    }
    return opener === undefined ? within(parts) : syntaxFault(opener, "the block has no {{ end }}");
  }

  #keyword(keyword: string, tokens: Tokens, depth: number): Block {
    switch (keyword) {
      case "define":
        return this.#define(tokens, depth);
      case "if": {
        const when = whole(tokens);
        const { then, otherwise } = this.#branches(tokens.place, depth);
        return counted(tokens.place, (context) => (isTrue(when(context)) ? then : otherwise)(context));
      }
      case "with": {
        const value = whole(tokens);
        const { then, otherwise } = this.#branches(tokens.place, depth);
        return counted(tokens.place, (context) => {
          const dot = value(context);
          return isTrue(dot) ? then({ ...context, dot }) : otherwise(context);
        });
      }
      case "range":
        return this.#range(tokens, depth);
      default:
        return tokens.fail(`{{ ${keyword} }} is not known here`);
    }
  }

  #define(tokens: Tokens, depth: number): Block {
    const name = JSON.parse(tokens.word(/^"/, "a text in double quotes")) as string;
    tokens.end();
    if (depth > 0) tokens.fail("{{ define }} within a block");
    if (this.#defined.has(name)) tokens.fail(`"${name}" is defined twice`);
    this.#defined.set(name, this.#block(depth + 1, tokens.place));
    this.#finish(tokens.place);
    return () => "";
  }

  #range(tokens: Tokens, depth: number): Block {
    const names: string[] = [];
    if (tokens.peek(1) === ":=" || tokens.peek(1) === ",") {
      names.push(variable(tokens));
      if (tokens.take(",")) names.push(variable(tokens));
      if (!tokens.take(":=")) tokens.fail(":= is due");
    }
    const over = whole(tokens);
    const { then, otherwise } = this.#branches(tokens.place, depth);
    return counted(tokens.place, (context) => {
      const items = itemsOf(over(context), tokens.place);
      if (items.length === 0) return otherwise(context);
      return items
        .map(([key, dot]) => {
          const values = names.length === 2 ? [key, dot] : [dot];
          const named = names.map((name, at) => [name, values[at] ?? null] as const);
          return then({ ...context, dot, variables: new Map([...context.variables, ...named]) });
        })
        .join("");
    });
  }

  #branches(opener: Place, depth: number): { readonly then: Block; readonly otherwise: Block } {
    const then = this.#block(depth + 1, opener);
    const tokens = new Tokens(this.#pieces[this.#at] as Piece);
    if (tokens.keyword() === "end") {
      this.#finish(opener);
      return { then, otherwise: () => "" };
    }
    this.#at += 1;
    const more = tokens.keyword();
    if (more === "if") {
      const when = whole(tokens);
      const { then: yes, otherwise: no } = this.#branches(opener, depth + 1);
      return { then, otherwise: counted(tokens.place, (context) => (isTrue(when(context)) ? yes : no)(context)) };
    }
    if (more !== undefined) tokens.fail(`{{ else ${more} }} is not known here`);
    tokens.end();
    const otherwise = this.#block(depth + 1, opener);
    this.#finish(opener);
    return { then, otherwise };
  }

  #finish(opener: Place): void {
    const tokens = new Tokens(this.#pieces[this.#at] ?? syntaxFault(opener, "the block has no {{ end }}"));
    if (tokens.keyword() !== "end") tokens.fail("{{ end }} is due here");
    tokens.end();
    this.#at += 1;
  }
}

function within(parts: readonly Block[]): Block {
  return (context) => {
    const inner = { ...context, variables: new Map(context.variables) };
    return parts.map((part) => part(inner)).join("");
  };
}

/** `$name := value`, or a value that is printed. */
function statement(tokens: Tokens): Block {
  const { place } = tokens;
  if (tokens.peek() === undefined) tokens.fail("the action is empty");
  if (tokens.peek(1) === ":=") {
    const name = variable(tokens);
    tokens.next();
    const value = whole(tokens);
    return (context) => {
      context.variables.set(name, value(context));
      return "";
    };
  }
  const value = whole(tokens);
  return counted(place, (context) => printed(value(context), place));
}

function variable(tokens: Tokens): string {
  return tokens.word(/^\$\w+$/, "a variable");
}

/** An expression that fills the rest of the action. */
function whole(tokens: Tokens): Evaluate {
  const value = pipeline(tokens, 0);
  tokens.end();
  return value;
}

function pipeline(tokens: Tokens, depth: number): Evaluate {
  if (depth > MAX_DEPTH) tokens.fail(`more than ${MAX_DEPTH} parentheses in each other`);
  let value = command(tokens, depth);
  while (tokens.take("|")) {
    const name = tokens.word(/^[A-Za-z]\w*$/, "a function");
    value = call(tokens.place, name, [...operands(tokens, depth), value]);
  }
  return value;
}

/** A function with its arguments, or one value. */
function command(tokens: Tokens, depth: number): Evaluate {
  const token = tokens.peek() ?? tokens.fail("a value is due");
  if (!/^[A-Za-z]\w*$/.test(token) || token === "true" || token === "false") return operand(tokens, depth);
  return call(tokens.place, tokens.next(), operands(tokens, depth));
}

function operands(tokens: Tokens, depth: number): Evaluate[] {
  const values: Evaluate[] = [];
  for (;;) {
    const token = tokens.peek();
    if (token === undefined || token === "|" || token === ")") return values;
    values.push(operand(tokens, depth));
  }
}

function operand(tokens: Tokens, depth: number): Evaluate {
  const { place } = tokens;
  const token = tokens.next();
  if (token === "(") {
    const value = pipeline(tokens, depth + 1);
    return tokens.take(")") ? value : tokens.fail(") is due");
  }
  if (/^("|-?\d|true$|false$)/.test(token)) {
    const value = JSON.parse(token) as Value;
    return () => value;
  }
  if (token === ".") return ({ dot }) => dot;
  const [name = "", ...fields] = token.split(".");
  if (!/^[.$]/.test(token))
    tokens.fail(`"${token}" stands where a value is due; a function with arguments needs parentheses`);
  return counted(place, ({ dot, variables }) => {
    const value = name === "" ? dot : (variables.get(name) ?? fault(place, `there is no variable ${name}`));
    return fields.reduce((of, field) => fieldOf(of, field, place), value);
  });
}

function call(place: Place, name: string, args: readonly Evaluate[]): Evaluate {
  const values = (context: Context): Value[] => args.map((arg) => arg(context));
  if (name === "and" || name === "or") {
    // The rest is not evaluated once the result is known, as in Go.
    return counted(place, (context) => {
      if (args.length === 0) fault(place, `${name} needs arguments`);
      let value: Value = null;
      for (const arg of args) {
        value = arg(context);
        if (isTrue(value) === (name === "or")) return value;
      }
      return value;
    });
  }
  if (name === "include") return counted(place, (context) => include(place, values(context), context));
  const apply = Object.hasOwn(FUNCTIONS, name) ? FUNCTIONS[name] : undefined;
  return counted(place, (context) =>
    apply === undefined ? fault(place, `the function ${name} is not known here`) : apply(values(context), place),
  );
}

function include(place: Place, [name, dot, ...more]: readonly Value[], { defined, progress }: Context): string {
  if (typeof name !== "string" || dot === undefined || more.length > 0)
    return fault(place, "include needs a name and a value");
  const parts = defined.get(name) ?? fault(place, `nothing is defined as "${name}"`);
  if (progress.includes >= MAX_INCLUDES) fault(place, `more than ${MAX_INCLUDES} includes in each other`);
  progress.includes += 1;
  try {
    return parts({ dot, variables: new Map([["$", dot]]), defined, progress });
  } finally {
    progress.includes -= 1;
  }
}
