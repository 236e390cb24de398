import { ExpectedError } from "#base/errors";

/**
 * `syntax` and `type`: the expression does not compile. `evaluation`: it has no value for this data, for example because a key is absent.
 * `cost`: it has exceeded its budget.
 */
export type CelErrorCode = "syntax" | "type" | "evaluation" | "cost";

/** The reason why an expression does not compile, or has no value. Messages for users are the same as those of cel-go. */
export class CelError extends ExpectedError<CelErrorCode> {
  override readonly name = "CelError";
}

/** An error with its place in the source, formatted like cel-go's. */
export function errorAt(code: "syntax" | "type", source: string, at: number, message: string): CelError {
  const before = source.slice(0, at).split("\n");
  const column = before.at(-1)?.length ?? 0;
  const line = source.split("\n")[before.length - 1] ?? "";
  const place = `<input>:${before.length}:${column + 1}`;
  return new CelError(code, `ERROR: ${place}: ${message}\n | ${line}\n | ${".".repeat(column)}^`);
}

/** An expression that has no value. */
export function noValue(message: string): CelError {
  return new CelError("evaluation", message);
}
