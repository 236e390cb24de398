import { CelError, errorAt } from "./errors.ts";
import { fits, overloadsOf } from "./functions.ts";
import type { Expr } from "./syntax.ts";
import { assignable, showType, substitute, T, type Type } from "./types.ts";

/** The variables that an expression may use. */
export type Scope = ReadonlyMap<string, Type>;

/** The result of the check. */
export interface Checked {
  readonly type: Type;
  /** The variables of the outermost scope that the expression uses. */
  readonly uses: ReadonlySet<string>;
}

/** Names of types, which are values too. */
export const TYPE_NAMES: ReadonlySet<string> = new Set(
  "bool int uint double string bytes list map null_type type timestamp duration".split(" "),
);

/** Checks the types of an expression. Throws CelError `type` for the first fault. */
export function check(expr: Expr, scope: Scope, source: string): Checked {
  const checker = new Checker(source, scope);
  return { type: checker.resolved(expr, scope), uses: checker.uses };
}

/** `optional.of` and `optional.none` are functions in a namespace, not methods. */
export function namespaced(expr: Expr & { readonly op: "call" }): string | undefined {
  return expr.target?.op === "ident" && expr.target.name === "optional" ? `optional.${expr.name}` : undefined;
}

/** Functions whose literal arguments are checked. */
const LITERAL_CHECKED = new Set(["matches", "timestamp", "duration"]);

class Checker {
  readonly uses = new Set<string>();
  readonly #source: string;
  readonly #outer: Scope;
  #known = new Map<string, Type>();
  #serial = 0;

  constructor(source: string, outer: Scope) {
    this.#source = source;
    this.#outer = outer;
  }

  resolved(expr: Expr, scope: Scope): Type {
    return substitute(this.#type(expr, scope), this.#known);
  }

  #error(at: number, message: string): Error {
    return errorAt("type", this.#source, at, message);
  }

  #fresh(): Type {
    this.#serial += 1;
    return { kind: "var", name: `#${this.#serial}` };
  }

  #type(expr: Expr, scope: Scope): Type {
    switch (expr.op) {
      case "literal":
        return literalType(expr.value);
      case "ident":
        return this.#ident(expr, scope);
      case "select": {
        const field = this.#field(expr, this.resolved(expr.operand, scope), expr.optional);
        return expr.optional && field.kind !== "optional" ? { kind: "optional", item: field } : field;
      }
      case "has":
        this.#field(expr, this.resolved(expr.operand, scope), false);
        return T.bool;
      case "index":
        return this.#index(expr, scope);
      case "call":
        return this.#call(expr, scope);
      case "and":
      case "or":
        for (const side of [expr.left, expr.right]) this.#needBool(side, scope);
        return T.bool;
      case "choose":
        return this.#choose(expr, scope);
      case "list":
        return { kind: "list", item: this.#common(expr.items, scope) };
      case "map": {
        const key = this.#common(
          expr.entries.map((entry) => entry.key),
          scope,
        );
        return {
          kind: "map",
          key,
          value: this.#common(
            expr.entries.map((entry) => entry.value),
            scope,
          ),
        };
      }
      case "fold":
        return this.#fold(expr, scope);
      case "optMap":
        return this.#optMap(expr, scope);
    }
  }

  #ident({ name, at }: Expr & { readonly op: "ident" }, scope: Scope): Type {
    const type = scope.get(name);
    if (type !== undefined) {
      if (this.#outer.get(name) === type) this.uses.add(name);
      return type;
    }
    if (TYPE_NAMES.has(name)) return T.type;
    throw this.#error(at, `undeclared reference to '${name}' (in container '')`);
  }

  /** The type of a member. With `optional`, or for a member of an optional, the type is an optional. */
  #field(expr: { readonly at: number; readonly field: string }, operand: Type, optional: boolean): Type {
    switch (operand.kind) {
      case "dyn":
        return T.dyn;
      case "var":
        return T.dyn;
      case "map":
        return operand.value;
      case "optional":
        return { kind: "optional", item: this.#field(expr, operand.item, optional) };
      case "object": {
        const field = operand.fields.get(expr.field);
        if (field === undefined) throw this.#error(expr.at, `undefined field '${expr.field}'`);
        return field.type;
      }
      default:
        throw this.#error(expr.at, `type '${showType(operand)}' does not support field selection`);
    }
  }

  #index(expr: Expr & { readonly op: "index" }, scope: Scope): Type {
    const operand = this.resolved(expr.operand, scope);
    const index = this.resolved(expr.index, scope);
    const within = operand.kind === "optional" ? operand.item : operand;
    const wanted = within.kind === "list" ? T.int : within.kind === "map" ? within.key : undefined;
    if (within.kind !== "dyn" && (wanted === undefined || !this.#fits(wanted, index))) {
      throw this.#noOverload(expr.at, expr.optional ? "_[?_]" : "_[_]", [operand, index]);
    }
    const item = within.kind === "list" ? within.item : within.kind === "map" ? within.value : T.dyn;
    return expr.optional || operand.kind === "optional" ? { kind: "optional", item } : item;
  }

  #fits(wanted: Type, actual: Type): boolean {
    const trial = new Map(this.#known);
    if (!assignable(wanted, actual, trial)) return false;
    this.#known = trial;
    return true;
  }

  #noOverload(at: number, name: string, args: readonly Type[], method = false): Error {
    const [first, ...rest] = args.map((type) => showType(substitute(type, this.#known)));
    const shown = method
      ? `${first}.(${rest.join(", ")})`
      : `(${[first, ...rest].filter((text) => text !== undefined).join(", ")})`;
    return this.#error(at, `found no matching overload for '${name}' applied to '${shown}'`);
  }

  #call(expr: Expr & { readonly op: "call" }, scope: Scope): Type {
    const name = namespaced(expr);
    const target = name === undefined ? expr.target : undefined;
    const overloads = overloadsOf(name ?? expr.name, target !== undefined);
    const args = [...(target === undefined ? [] : [target]), ...expr.args].map((arg) => this.#type(arg, scope));
    if (overloads.length === 0)
      throw this.#error(expr.at, `undeclared reference to '${name ?? expr.name}' (in container '')`);
    let result: Type | undefined;
    for (const overload of overloads) {
      const [params, own] = this.#instance(overload.params, overload.result);
      const trial = new Map(this.#known);
      if (params.length !== args.length || !params.every((param, at) => assignable(param, args[at] ?? T.dyn, trial)))
        continue;
      const found = substitute(own, trial);
      // Several overloads fit if an argument has any type: then the result has any type too.
      if (result !== undefined && showType(result) !== showType(found)) return T.dyn;
      if (result === undefined) this.#known = trial;
      result = found;
    }
    if (result === undefined) throw this.#noOverload(expr.at, name ?? expr.name, args, target !== undefined);
    this.#checkLiteral(expr);
    return result;
  }

  /** A literal pattern, time or duration must be valid. */
  #checkLiteral({ name, args }: Expr & { readonly op: "call" }): void {
    const last = args.at(-1);
    if (!LITERAL_CHECKED.has(name) || last?.op !== "literal" || typeof last.value !== "string") return;
    const { value } = last;
    try {
      for (const overload of overloadsOf(name, false)) {
        const given = name === "matches" ? ["", value] : [value];
        if (overload.params.every((param, at) => fits(given[at] ?? null, param))) overload.call(given);
      }
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      throw this.#error(last.at, `invalid ${name} argument`);
    }
  }

  /** A copy of a signature with new type variables. */
  #instance(params: readonly Type[], result: Type): [Type[], Type] {
    const names = new Map(["A", "B"].map((name) => [name, this.#fresh()]));
    return [params.map((param) => substitute(param, names)), substitute(result, names)];
  }

  #needBool(expr: Expr, scope: Scope): void {
    const type = this.resolved(expr, scope);
    if (!this.#fits(T.bool, type)) throw this.#error(expr.at, `expected type 'bool' but found '${showType(type)}'`);
  }

  #choose(expr: Expr & { readonly op: "choose" }, scope: Scope): Type {
    const test = this.resolved(expr.test, scope);
    const yes = this.#type(expr.yes, scope);
    const no = this.#type(expr.no, scope);
    const fits = this.#fits(T.bool, test) && this.#fits(yes, no);
    if (!fits) throw this.#noOverload(expr.at, "_?_:_", [test, yes, no]);
    return substitute(yes, this.#known).kind === "null" ? no : yes;
  }

  /** The common type of all items of a literal. */
  #common(items: readonly Expr[], scope: Scope): Type {
    const [first, ...rest] = items;
    if (first === undefined) return this.#fresh();
    const type = this.#type(first, scope);
    for (const item of rest) {
      const other = this.resolved(item, scope);
      if (this.#fits(type, other)) continue;
      throw this.#error(
        item.at,
        `expected type '${showType(substitute(type, this.#known))}' but found '${showType(other)}'`,
      );
    }
    return type;
  }

  #fold(expr: Expr & { readonly op: "fold" }, scope: Scope): Type {
    const range = this.resolved(expr.range, scope);
    const item = itemOf(range);
    if (item === undefined) {
      const why = `expression of type '${showType(range)}' cannot be range of a comprehension (must be list, map, or dynamic)`;
      throw this.#error(expr.range.at, why);
    }
    const inner = new Map([...scope, [expr.variable, item]]);
    const list: Type = { kind: "list", item };
    const choose = (test: Expr, of: Type): void => {
      const type = this.resolved(test, inner);
      if (!this.#fits(T.bool, type)) throw this.#noOverload(expr.at, "_?_:_", [type, of, of]);
    };
    if (expr.filter !== undefined) choose(expr.filter, list);
    if (expr.kind === "map") return { kind: "list", item: this.#type(expr.body, inner) };
    if (expr.kind === "filter" || expr.kind === "exists_one") choose(expr.body, expr.kind === "filter" ? list : T.int);
    else this.#needBool(expr.body, inner);
    return expr.kind === "filter" ? list : T.bool;
  }

  #optMap(expr: Expr & { readonly op: "optMap" }, scope: Scope): Type {
    const range = this.resolved(expr.range, scope);
    if (range.kind !== "optional" && range.kind !== "dyn") throw this.#noOverload(expr.at, "hasValue", [range], true);
    const item = range.kind === "optional" ? range.item : T.dyn;
    const body = this.#type(expr.body, new Map([...scope, [expr.variable, item]]));
    return expr.flat ? body : { kind: "optional", item: body };
  }
}

function itemOf(range: Type): Type | undefined {
  if (range.kind === "list") return range.item;
  if (range.kind === "map") return range.key;
  return range.kind === "dyn" || range.kind === "var" ? T.dyn : undefined;
}

function literalType(value: (Expr & { readonly op: "literal" })["value"]): Type {
  if (value === null) return T.null;
  switch (typeof value) {
    case "boolean":
      return T.bool;
    case "bigint":
      return T.int;
    case "number":
      return T.double;
    case "string":
      return T.string;
    default:
      return T.bytes;
  }
}
