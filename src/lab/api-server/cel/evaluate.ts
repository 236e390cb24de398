import { namespaced, TYPE_NAMES } from "./check.ts";
import { CelError, noValue } from "./errors.ts";
import { fits, overloadsOf } from "./functions.ts";
import type { Expr } from "./syntax.ts";
import { CelObject, isList, isMap, Optional, TypeName, typeNameOf, type Value } from "./value.ts";

/** The remaining budget: each step costs one, and so do each ten characters or items that a function reads. */
export interface Budget {
  left: number;
}

/** The values of variables. */
export type Variables = ReadonlyMap<string, Value>;

/** The value of a checked expression. Throws CelError `evaluation` if it has no value, and `cost` if the budget is exceeded. */
export function evaluate(expr: Expr, variables: Variables, budget: Budget): Value {
  spend(budget, 1);
  const inner = (part: Expr): Value => evaluate(part, variables, budget);
  switch (expr.op) {
    case "literal":
      return expr.value;
    case "ident":
      return ident(expr.name, variables);
    case "select":
      return select(inner(expr.operand), expr.field, expr.optional);
    case "has":
      return has(inner(expr.operand), expr.field);
    case "index":
      return index(inner(expr.operand), inner(expr.index), expr.optional);
    case "call":
      return call(expr, inner, budget);
    case "and":
    case "or":
      return logic([expr.left, expr.right], expr.op === "or", inner);
    case "choose":
      return bool(inner(expr.test)) ? inner(expr.yes) : inner(expr.no);
    case "list":
      return expr.items.map(inner);
    case "map":
      return new Map(expr.entries.map(({ key, value }) => [inner(key), inner(value)]));
    case "fold":
      return fold(expr, variables, budget);
    case "optMap":
      return optMap(expr, inner(expr.range), variables, budget);
  }
}

function spend(budget: Budget, cost: number): void {
  budget.left -= cost;
  if (budget.left < 0) throw new CelError("cost", "operation cancelled: actual cost limit exceeded");
}

function ident(name: string, variables: Variables): Value {
  const value = variables.get(name);
  if (value !== undefined) return value;
  if (TYPE_NAMES.has(name)) return new TypeName(name);
  throw noValue(`no such attribute(s): ${name}`);
}

function member(operand: Value, field: string): Value | undefined {
  if (operand instanceof CelObject) return operand.get(field);
  if (isMap(operand)) return operand.get(field);
  throw noValue(`unsupported type '${typeNameOf(operand)}' for field selection`);
}

function select(operand: Value, field: string, optional: boolean): Value {
  if (operand instanceof Optional) {
    return operand.value === undefined ? operand : new Optional(member(operand.value, field));
  }
  const found = member(operand, field);
  if (optional) return new Optional(found);
  if (found === undefined) throw noValue(`no such key: ${field}`);
  return found;
}

function has(operand: Value, field: string): boolean {
  const within = operand instanceof Optional ? operand.value : operand;
  return within !== undefined && member(within, field) !== undefined;
}

function index(operand: Value, at: Value, optional: boolean): Value {
  const within = operand instanceof Optional ? operand.value : operand;
  const isOptional = optional || operand instanceof Optional;
  const found = within === undefined ? undefined : itemAt(within, at);
  if (isOptional) return new Optional(found);
  if (found !== undefined) return found;
  throw noValue(within !== undefined && isList(within) ? `index out of bounds: ${at}` : `no such key: ${at}`);
}

function itemAt(within: Value, at: Value): Value | undefined {
  if (isList(within))
    return (typeof at === "bigint" || typeof at === "number") && Number(at) >= 0 ? within[Number(at)] : undefined;
  if (isMap(within)) return within.get(at);
  if (within instanceof CelObject && typeof at === "string") return within.get(at);
  throw noValue("no such overload");
}

function bool(value: Value): boolean {
  if (typeof value === "boolean") return value;
  throw noValue("no such overload");
}

function call(expr: Expr & { readonly op: "call" }, inner: (part: Expr) => Value, budget: Budget): Value {
  const name = namespaced(expr);
  const target = name === undefined ? expr.target : undefined;
  const args = [...(target === undefined ? [] : [target]), ...expr.args].map(inner);
  if (!AT_ONCE.has(expr.name)) for (const arg of args) spend(budget, sizeOf(arg) / 10);
  const overload = overloadsOf(name ?? expr.name, target !== undefined).find(
    ({ params }) => params.length === args.length && params.every((param, at) => fits(args[at] ?? null, param)),
  );
  if (overload === undefined) throw noValue("no such overload");
  return overload.call(args);
}

/** Functions that do not read their arguments item by item. */
const AT_ONCE = new Set(["size", "type", "dyn", "hasValue", "value", "orValue", "or", "of", "none"]);

function sizeOf(value: Value): number {
  if (typeof value === "string" || value instanceof Uint8Array) return value.length;
  if (!isList(value)) return isMap(value) ? value.size : 0;
  // Joined and compared values are read item by item.
  return value.reduce((sum: number, item) => sum + 1 + (typeof item === "string" ? item.length : 0), 0);
}

/** The value of `part`, or its error. */
function attempt(part: Expr, inner: (part: Expr) => Value): boolean | CelError {
  try {
    return bool(inner(part));
  } catch (error) {
    if (error instanceof CelError && error.code === "evaluation") return error;
    throw error;
  }
}

/** `&&` and `||`: if one side decides the result, an error of the other side is ignored. */
function logic(parts: readonly Expr[], decisive: boolean, inner: (part: Expr) => Value): boolean {
  let failed: CelError | undefined;
  for (const part of parts) {
    const value = attempt(part, inner);
    if (value === decisive) return decisive;
    if (value instanceof CelError) failed ??= value;
  }
  if (failed !== undefined) throw failed;
  return !decisive;
}

function fold(expr: Expr & { readonly op: "fold" }, variables: Variables, budget: Budget): Value {
  const range = evaluate(expr.range, variables, budget);
  if (!isList(range) && !isMap(range)) throw noValue("no such overload");
  const items = isList(range) ? range : [...range.keys()];
  const scope = new Map(variables);
  const value = (part: Expr, item: Value): Value => {
    scope.set(expr.variable, item);
    return evaluate(part, scope, budget);
  };
  const keeps = (part: Expr, item: Value): boolean => bool(value(part, item));
  switch (expr.kind) {
    case "all":
    case "exists":
      return quantify(items, expr.kind === "exists", (item) => attempt(expr.body, (part) => value(part, item)));
    case "exists_one":
      return items.filter((item) => keeps(expr.body, item)).length === 1;
    case "filter":
      return items.filter((item) => keeps(expr.body, item));
    case "map": {
      const { filter } = expr;
      const kept = filter === undefined ? items : items.filter((item) => keeps(filter, item));
      return kept.map((item) => value(expr.body, item));
    }
  }
}

function quantify(items: readonly Value[], decisive: boolean, test: (item: Value) => boolean | CelError): boolean {
  let failed: CelError | undefined;
  for (const item of items) {
    const value = test(item);
    if (value === decisive) return decisive;
    if (value instanceof CelError) failed ??= value;
  }
  if (failed !== undefined) throw failed;
  return !decisive;
}

function optMap(expr: Expr & { readonly op: "optMap" }, range: Value, variables: Variables, budget: Budget): Value {
  if (!(range instanceof Optional)) throw noValue("no such overload");
  if (range.value === undefined) return range;
  const value = evaluate(expr.body, new Map([...variables, [expr.variable, range.value]]), budget);
  return expr.flat ? value : new Optional(value);
}
