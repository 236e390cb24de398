import { accessSync, constants } from "node:fs";
import { ConfigError, type Flag, TIMER_MAX } from "#base/config";
import { ExpectedError } from "#base/errors";

/** Bounds of a flag that limits one attempt: 0 would fail every attempt, and timers have a maximum. */
export const TIMEOUT_BOUNDS = { min: "1ms", max: TIMER_MAX } as const;

/** A flag whose value is a list with commas. Like Go's StringSlice, the flag may also be given several times. */
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

/** A flag whose value is a number of zero or more, which may have a fraction. */
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

/**
 * The value of `--server-id` or `--agent-id`: the flag, else the environment variable, else a random UUID. Workers add their numbers, because to
 * their peers each is a server or an agent of its own.
 */
export function identity(given: string, variable: string, worker?: { readonly index: number }): string {
  const id = given || process.env[variable] || crypto.randomUUID();
  return worker === undefined ? id : `${id}-${worker.index}`;
}

/** Checks the id of this process, or of a leader's worker with the longest number; returns it. */
export function checkIdentity(
  id: string,
  flag: string,
  { workers, worker }: { readonly workers: number; readonly worker: object | undefined },
  faults: Faults,
): string {
  const longest = workers > 1 && worker === undefined ? `${id}-${workers}` : id;
  faults.check(
    /^[\x21-\x7e]{1,256}$/.test(longest),
    flag,
    `${JSON.stringify(longest)} is not visible ASCII of at most 256 bytes`,
  );
  return longest;
}

/** Collects the faults of a command line; each names its flag. */
export class Faults {
  readonly #faults: string[] = [];

  add(flag: string, why: string): void {
    this.#faults.push(`--${flag}: ${why}`);
  }

  /** Adds the fault unless the condition holds. */
  check(condition: boolean, flag: string, why: string): void {
    if (!condition) this.add(flag, why);
  }

  /** Adds a fault if the path is not empty and its file is not readable. */
  file(flag: string, path: string): void {
    if (path === "") return;
    try {
      accessSync(path, constants.R_OK);
    } catch (error) {
      this.add(flag, `cannot read "${path}": ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** Adds a fault unless certificate and key are both given or both empty, and faults for files that are not readable. */
  pair(certFlag: string, cert: string, keyFlag: string, key: string): void {
    this.check(cert === "" || key !== "", keyFlag, `is needed with --${certFlag}`);
    this.check(key === "" || cert !== "", certFlag, `is needed with --${keyFlag}`);
    this.file(certFlag, cert);
    this.file(keyFlag, key);
  }

  /** Runs a parser. If it throws an expected error, adds a fault and returns the fallback. */
  parsed<T>(flag: string, parse: () => T, fallback: T): T {
    try {
      return parse();
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      for (const fault of error instanceof ConfigError ? error.faults : [error.message]) this.add(flag, fault);
      return fallback;
    }
  }

  /** Throws `ConfigError` with all faults, if there are any. */
  throwIfAny(): void {
    if (this.#faults.length > 0) throw new ConfigError("invalid-flags", this.#faults);
  }
}
