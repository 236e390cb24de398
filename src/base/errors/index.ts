/**
 * Errors that are part of a contract. Any other error that is thrown is a bug and ends the program.
 *
 * Each module declares one subclass with a closed union of codes; callers switch over the code and end the switch
 * with {@link assertNever}.
 *
 * ```ts
 * export type PoolErrorCode = "exhausted" | "not-found";
 * export class PoolError extends ExpectedError<PoolErrorCode> {
 *   override readonly name = "PoolError";
 * }
 * throw new PoolError("exhausted", "pool default does not have free blocks");
 * ```
 */

/** A failure that a caller may meet in a correct program: bad input, a refused system call, an absent peer. */
export abstract class ExpectedError<Code extends string = string> extends Error {
  readonly code: Code;

  /** `cause` keeps the original error when this error is a translation of it. */
  constructor(code: Code, message: string, options: { readonly cause?: unknown } = {}) {
    super(message, "cause" in options ? { cause: options.cause } : {});
    this.code = code;
  }
}

/** Call this at the end of an exhaustive switch. Throws an error that names the value without a case. */
export function assertNever(value: never): never {
  throw new Error(`No case for ${JSON.stringify(value)}`);
}

/** Describes an error in one line for a person: its message, then those messages of its causes that add information. */
export function describeError(error: unknown): string {
  const parts: string[] = [];
  for (let at: unknown = error, depth = 0; at !== undefined && at !== null && depth < 8; depth += 1) {
    const text = ownText(at);
    if (text !== "" && !parts.some((part) => part.includes(text))) parts.push(text);
    at = at instanceof Error ? at.cause : undefined;
  }
  return parts.join(": ");
}

/** Node's advice at a certificate that is not trusted (lib/_tls_wrap.js): nobody can give Node a flag here. */
const ADVICE = "; if the root CA is installed locally, try running Node.js with --use-system-ca";

function ownText(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) {
    const inner = error.errors.slice(0, 5).map(describeError).join("; ");
    return error.message === "" ? inner : `${error.message} (${inner})`;
  }
  if (error instanceof Error) return error.message.replace(ADVICE, "") || error.name;
  return String(error);
}

/** True for the error that an aborted `AbortSignal` throws. */
export function isAbortError(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError");
}
