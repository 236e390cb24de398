/** The loops of CEL's macros. */
export type FoldKind = "all" | "exists" | "exists_one" | "map" | "filter";

/** A literal's value. */
export type Literal = null | boolean | bigint | number | string | Uint8Array;

/** A parsed expression; `at` is the position in the source for errors. */
export type Expr = { readonly at: number } & (
  | { readonly op: "literal"; readonly value: Literal }
  | { readonly op: "ident"; readonly name: string }
  | { readonly op: "select"; readonly operand: Expr; readonly field: string; readonly optional: boolean }
  | { readonly op: "has"; readonly operand: Expr; readonly field: string }
  | { readonly op: "index"; readonly operand: Expr; readonly index: Expr; readonly optional: boolean }
  /** Operators are calls of names such as `_==_`. */
  | { readonly op: "call"; readonly name: string; readonly target: Expr | undefined; readonly args: readonly Expr[] }
  | { readonly op: "and" | "or"; readonly left: Expr; readonly right: Expr }
  | { readonly op: "choose"; readonly test: Expr; readonly yes: Expr; readonly no: Expr }
  | { readonly op: "list"; readonly items: readonly Expr[] }
  | { readonly op: "map"; readonly entries: readonly { readonly key: Expr; readonly value: Expr }[] }
  | {
      readonly op: "fold";
      readonly kind: FoldKind;
      readonly range: Expr;
      readonly variable: string;
      /** The filter of `map` with three arguments. */
      readonly filter: Expr | undefined;
      readonly body: Expr;
    }
  | {
      readonly op: "optMap";
      readonly flat: boolean;
      readonly range: Expr;
      readonly variable: string;
      readonly body: Expr;
    }
);

/** The parts of an expression that are expressions. */
export function partsOf(expr: Expr): readonly Expr[] {
  switch (expr.op) {
    case "literal":
    case "ident":
      return [];
    case "select":
    case "has":
      return [expr.operand];
    case "index":
      return [expr.operand, expr.index];
    case "call":
      return expr.target === undefined ? expr.args : [expr.target, ...expr.args];
    case "and":
    case "or":
      return [expr.left, expr.right];
    case "choose":
      return [expr.test, expr.yes, expr.no];
    case "list":
      return expr.items;
    case "map":
      return expr.entries.flatMap(({ key, value }) => [key, value]);
    case "fold":
      return [expr.range, ...(expr.filter === undefined ? [] : [expr.filter]), expr.body];
    case "optMap":
      return [expr.range, expr.body];
  }
}
