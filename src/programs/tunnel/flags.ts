import { accessSync, constants } from "node:fs";
import { ConfigError, type Flag, TIMER_MAX } from "#base/config";
import { ExpectedError } from "#base/errors";

/** Of a flag that limits one attempt: none at all would fail each, and more is no limit to a timer. */
export const timeout = { min: "1ms", max: TIMER_MAX } as const;

/** A list with commas, as Go's StringSlice: may be given several times too. */
export function commaListFlag(name: string, help: string, placeholder: string): Flag<readonly string[]> {
  return {
    name,
    help,
    placeholder,
    defaultText: undefined,
    initial: [],
    parse: (text, before) => [...before, ...text.split(",").map((part) => part.trim())].filter((part) => part !== ""),
  };
}

/** A number of zero or more that may have a fraction. */
export function decimalFlag(name: string, initial: number, help: string): Flag<number> {
  return {
    name,
    help,
    placeholder: "N",
    defaultText: String(initial),
    initial,
    parse(text) {
      if (/^\d{1,9}(\.\d{1,9})?$/.test(text)) return Number(text);
      throw new ConfigError("invalid-value", [`"${text}" is not a number of zero or more`]);
    },
  };
}

/** The default of `--server-id` and `--agent-id`: what the environment says, else something new. */
export function identity(given: string, variable: string): string {
  return given || process.env[variable] || crypto.randomUUID();
}

/** What is wrong with a command line as a whole; each fault names its flag. */
export class Faults {
  readonly #faults: string[] = [];

  add(flag: string, why: string): void {
    this.#faults.push(`--${flag}: ${why}`);
  }

  /** Adds the fault unless the condition holds. */
  check(condition: boolean, flag: string, why: string): void {
    if (!condition) this.add(flag, why);
  }

  /** A file that is named must be readable. */
  file(flag: string, path: string): void {
    if (path === "") return;
    try {
      accessSync(path, constants.R_OK);
    } catch (error) {
      this.add(flag, `cannot read "${path}": ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** A certificate is nothing without its key. */
  pair(certFlag: string, cert: string, keyFlag: string, key: string): void {
    this.check(cert === "" || key !== "", keyFlag, `is needed with --${certFlag}`);
    this.check(key === "" || cert !== "", certFlag, `is needed with --${keyFlag}`);
    this.file(certFlag, cert);
    this.file(keyFlag, key);
  }

  /** Runs a parser; what it refuses is a fault of the flag, and the fallback is what comes back. */
  parsed<T>(flag: string, parse: () => T, fallback: T): T {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      for (const fault of error instanceof ConfigError ? error.faults : [error.message]) this.add(flag, fault);
      return fallback;
    }
  }

  /** Throws `ConfigError` with all of them, if there are any. */
  throwIfAny(): void {
    if (this.#faults.length > 0) throw new ConfigError("invalid-flags", this.#faults);
  }
}
