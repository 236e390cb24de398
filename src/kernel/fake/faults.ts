import { errnoNumber, KernelError, type KernelErrorCode } from "#kernel/errors";

/** A rule by which operations fail. */
export interface Fault {
  /** Port and method of the operations that fail, such as `links.create` or `routes.add`; `*` for all. */
  readonly operation: string;
  readonly code: KernelErrorCode;
  /** The number of operations that fail; default 1. `Infinity`: all. */
  readonly times?: number;
  /** The number of matching operations before it that succeed; default 0. So a test can break a piece of work at each of its operations. */
  readonly after?: number;
  /** The fault applies only to operations whose description, as in error messages, contains this text. */
  readonly about?: string;
}

/** The faults of a fake kernel and the operations it saw. */
export class Faults {
  readonly #rules: { readonly fault: Fault; left: number; spared: number }[] = [];

  add(fault: Fault): void {
    this.#rules.push({ fault, left: fault.times ?? 1, spared: fault.after ?? 0 });
  }

  clear(): void {
    this.#rules.length = 0;
  }

  /** Throws if a rule matches. */
  check(operation: string, what: string): void {
    const rule = this.#rules.find(
      ({ fault, left }) =>
        left > 0 &&
        (fault.operation === "*" || fault.operation === operation) &&
        (fault.about === undefined || what.includes(fault.about)),
    );
    if (rule === undefined) return;
    if (rule.spared > 0) {
      rule.spared -= 1;
      return;
    }
    rule.left -= 1;
    throw new KernelError(rule.fault.code, `Cannot ${what}: injected failure (${rule.fault.code})`);
  }
}

/** The kernel's error for the name of an errno. */
export function refuse(errno: string, what: string, detail = ""): KernelError {
  const number = errnoNumber(errno);
  if (number === undefined) throw new Error(`unknown errno ${errno}`);
  return KernelError.fromErrno(number, what, detail);
}
