import { check, type Scope } from "./check.ts";
import { type Budget, evaluate, type Variables } from "./evaluate.ts";
import { parse } from "./parse.ts";
import { type Expr, partsOf } from "./syntax.ts";
import type { Type } from "./types.ts";
import type { Value } from "./value.ts";

/** Conversions of literals are made once, when the expression is compiled. */
const CONVERSIONS = new Set(["bool", "bytes", "double", "duration", "int", "string", "timestamp"]);

function convertLiterals(expr: Expr): void {
  const isConversion = expr.op === "call" && expr.target === undefined && CONVERSIONS.has(expr.name);
  if (isConversion && expr.args.every(({ op }) => op === "literal")) evaluate(expr, new Map(), { left: 1000 });
  for (const part of partsOf(expr)) convertLiterals(part);
}

/** A compiled expression. */
export interface Program {
  readonly type: Type;
  /** The variables that it uses. */
  readonly uses: ReadonlySet<string>;
  /** Returns its value. Throws CelError `evaluation` if it has no value, and `cost` if the budget is exceeded. */
  readonly run: (variables: Variables, budget: Budget) => Value;
}

/**
 * Parses an expression and checks its types. Throws CelError `syntax` or `type`, and `evaluation` for a literal that cannot be converted.
 */
export function compile(source: string, scope: Scope): Program {
  const expr = parse(source);
  const { type, uses } = check(expr, scope, source);
  convertLiterals(expr);
  return { type, uses, run: (variables, budget) => evaluate(expr, variables, budget) };
}
