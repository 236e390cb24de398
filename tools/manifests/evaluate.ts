import { createHash } from "node:crypto";
import { stringify } from "yaml";
import { ChartError } from "./error.ts";
import type { Expression, Part, Place } from "./parse.ts";

/** A value of a template: JSON, with maps as objects. */
export type Value = null | boolean | number | string | readonly Value[] | { readonly [key: string]: Value };

/** Blocks by name, of all files of a chart. */
export type Definitions = ReadonlyMap<string, readonly Part[]>;

/** `include` within `include`. */
const MAX_INCLUDES = 32;
/** Parts and expressions of one rendering; a chart's own templates need a few thousand. */
const MAX_STEPS = 1_000_000;
/** From here on Go prints a number of a values file with an exponent. */
const MAX_PRINTED = 1_000_000;

/**
 * Renders parts with a value for the dot. What Helm would print as an empty text, a field that is not there, is a fault here. Throws
 * {@link ChartError} (`render`).
 */
export function renderParts(parts: readonly Part[], defined: Definitions, dot: Value): string {
  return new Rendering(defined).parts(parts, dot, new Map([["$", dot]]));
}

type Variables = ReadonlyMap<string, Value>;

class Rendering {
  readonly #defined: Definitions;
  #includes = 0;
  #steps = 0;

  constructor(defined: Definitions) {
    this.#defined = defined;
  }

  parts(parts: readonly Part[], dot: Value, variables: Variables): string {
    const scope = new Map(variables);
    return parts
      .map((part) => {
        if (part.kind !== "set") return this.#part(part, dot, scope);
        scope.set(part.name, this.#value(part.value, dot, scope));
        return "";
      })
      .join("");
  }

  #part(part: Exclude<Part, { kind: "set" }>, dot: Value, scope: Variables): string {
    this.#step(part);
    if (part.kind === "text") return part.text;
    if (part.kind === "print") return printed(this.#value(part.value, dot, scope), part);
    if (part.kind === "if")
      return this.parts(isTrue(this.#value(part.when, dot, scope)) ? part.then : part.otherwise, dot, scope);
    if (part.kind === "with") {
      const value = this.#value(part.value, dot, scope);
      return isTrue(value) ? this.parts(part.then, value, scope) : this.parts(part.otherwise, dot, scope);
    }
    const over = this.#value(part.over, dot, scope);
    const items = itemsOf(over, part);
    if (items.length === 0) return this.parts(part.otherwise, dot, scope);
    return items
      .map(([key, item]) => {
        const named = part.names.length === 2 ? [key, item] : [item];
        return this.parts(
          part.then,
          item,
          new Map([...scope, ...part.names.map((name, at) => [name, named[at] ?? null] as const)]),
        );
      })
      .join("");
  }

  #value(expression: Expression, dot: Value, scope: Variables): Value {
    this.#step(expression);
    switch (expression.kind) {
      case "literal":
        return expression.value;
      case "dot":
        return dot;
      case "variable":
        return scope.get(expression.name) ?? fault(expression, `there is no variable ${expression.name}`);
      case "field":
        return fieldOf(this.#value(expression.of, dot, scope), expression);
      case "call":
        return this.#call(expression, dot, scope);
    }
  }

  #call(call: Extract<Expression, { kind: "call" }>, dot: Value, scope: Variables): Value {
    const { name } = call;
    const args = (): Value[] => call.args.map((arg) => this.#value(arg, dot, scope));
    // The rest of these is not evaluated once the result is known, as in Go.
    if (name === "and" || name === "or") {
      if (call.args.length === 0) fault(call, `${name} needs arguments`);
      let value: Value = null;
      for (const arg of call.args) {
        value = this.#value(arg, dot, scope);
        if (isTrue(value) === (name === "or")) return value;
      }
      return value;
    }
    if (name === "include") {
      const [which, value] = args();
      if (call.args.length !== 2 || typeof which !== "string" || value === undefined)
        return fault(call, "include needs a name and a value");
      return this.#include(which, value, call);
    }
    const apply = Object.hasOwn(FUNCTIONS, name) ? FUNCTIONS[name] : undefined;
    return apply === undefined ? fault(call, `the function ${name} is not known here`) : apply(args(), call);
  }

  #include(name: string, dot: Value, place: Place): string {
    const parts = this.#defined.get(name) ?? fault(place, `nothing is defined as "${name}"`);
    if (this.#includes >= MAX_INCLUDES) fault(place, `more than ${MAX_INCLUDES} includes in each other`);
    this.#includes += 1;
    try {
      return this.parts(parts, dot, new Map([["$", dot]]));
    } finally {
      this.#includes -= 1;
    }
  }

  #step(place: Place): void {
    this.#steps += 1;
    if (this.#steps > MAX_STEPS) fault(place, `the template takes more than ${MAX_STEPS} steps`);
  }
}

type TemplateFunction = (args: readonly Value[], place: Place) => Value;

/** Those of Go and of Helm that are known here; each gives what Helm's gives. */
const FUNCTIONS: Readonly<Record<string, TemplateFunction>> = {
  toYaml: one((value) =>
    stringify(value, {
      sortMapEntries: true,
      // Kubernetes reads `on` and `y` as true.
      version: "1.1",
      lineWidth: 0,
      indentSeq: false,
      aliasDuplicateObjects: false,
    }).trimEnd(),
  ),
  quote: one((value, place) => JSON.stringify(printed(value, place))),
  trim: one((value, place) => textOf(value, place).trim()),
  sha256sum: one((value, place) => createHash("sha256").update(textOf(value, place)).digest("hex")),
  not: one((value) => !isTrue(value)),
  fail: one((value, place) => fault(place, textOf(value, place))),
  eq: two((left, right, place) => isEqual(left, right, place)),
  ne: two((left, right, place) => !isEqual(left, right, place)),
  default: two((fallback, value) => (isTrue(value) ? value : fallback)),
  indent: two((count, value, place) => indented(count, value, place)),
  nindent: two((count, value, place) => `\n${indented(count, value, place)}`),
  contains: two((part, value, place) => textOf(value, place).includes(textOf(part, place))),
  join: two((separator, value, place) =>
    itemsOf(value, place)
      .map(([, item]) => printed(item, place))
      .join(textOf(separator, place)),
  ),
  dict: (args, place) => {
    const entries: [string, Value][] = [];
    for (let at = 0; at < args.length; at += 2) {
      entries.push([textOf(args[at] ?? null, place), args[at + 1] ?? fault(place, "dict needs a value for each key")]);
    }
    return Object.fromEntries(entries);
  },
};

function one(apply: (value: Value, place: Place) => Value): TemplateFunction {
  return ([value, ...more], place) =>
    value === undefined || more.length > 0 ? fault(place, "the function needs one argument") : apply(value, place);
}

function two(apply: (first: Value, second: Value, place: Place) => Value): TemplateFunction {
  return ([first, second, ...more], place) =>
    first === undefined || second === undefined || more.length > 0
      ? fault(place, "the function needs two arguments")
      : apply(first, second, place);
}

function fault(place: Place, what: string): never {
  throw new ChartError("render", `${place.file}:${place.line}: ${what}`);
}

/** As in Go: what is empty is false. */
function isTrue(value: Value): boolean {
  if (value === null || typeof value !== "object") return Boolean(value);
  return (Array.isArray(value) ? value : Object.keys(value)).length > 0;
}

/** Go compares basic values of one kind. Numbers of templates and of values files are of two kinds there. */
function isEqual(left: Value, right: Value, place: Place): boolean {
  if (typeof left !== typeof right || (typeof left !== "string" && typeof left !== "boolean"))
    fault(place, "only two texts, or two of true and false, can be compared");
  return left === right;
}

function fieldOf(value: Value, { name, ...place }: Extract<Expression, { kind: "field" }>): Value {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    return fault(place, `.${name} is asked of what is no map`);
  const field = Object.hasOwn(value, name) ? (value as Readonly<Record<string, Value>>)[name] : undefined;
  return field ?? fault(place, `there is no .${name}`);
}

/** Items of a list with their numbers, of a map with their keys in order. */
function itemsOf(value: Value, place: Place): (readonly [Value, Value])[] {
  if (Array.isArray(value)) return (value as readonly Value[]).map((item, at) => [at, item]);
  if (value === null || typeof value !== "object") return fault(place, "range needs a list or a map");
  return Object.entries(value as Readonly<Record<string, Value>>).sort(([a], [b]) => (a < b ? -1 : 1));
}

function textOf(value: Value, place: Place): string {
  return typeof value === "string" ? value : fault(place, "a text is due");
}

function printed(value: Value, place: Place): string {
  if (value === null || typeof value === "object")
    return fault(place, "a list, a map or nothing is printed; toYaml is due");
  if (typeof value === "number" && (!Number.isInteger(value) || Math.abs(value) >= MAX_PRINTED))
    return fault(place, `${value} is printed otherwise by Helm; write it as text`);
  return String(value);
}

function indented(count: Value, value: Value, place: Place): string {
  if (typeof count !== "number" || count < 0 || count > 80) return fault(place, "the indentation is 0 to 80");
  return textOf(value, place).replaceAll(/^/gm, " ".repeat(count));
}
