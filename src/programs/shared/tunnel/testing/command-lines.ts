/** Helpers for the tests of both command lines. */
import assert from "node:assert/strict";
import { ConfigError, type FlagSet, parseFlags } from "#base/config";

/** The faults of a command line; none if it is accepted. */
export function faultsOf(parse: () => unknown): readonly string[] {
  try {
    parse();
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.faults;
  }
  return [];
}

/** The values of a command line without flags, by the flags' names. */
export function defaultsOf(flags: FlagSet): Readonly<Record<string, unknown>> {
  const values: Readonly<Record<string, unknown>> = parseFlags(flags, []).values;
  return Object.fromEntries(Object.entries(flags).map(([key, { name }]) => [name, values[key]]));
}

/** Checks that a timeout must fit a timer and be above 0. */
export function assertTimeout(flags: FlagSet, name: string): void {
  for (const [text, why] of [
    ["1300h", "too long: the maximum is 596h"],
    ["597h", "too long: the maximum is 596h"],
    ["0s", "too short: the minimum is 1ms"],
  ] as const) {
    const faults = faultsOf(() => parseFlags(flags, [`--${name}=${text}`]));
    assert.ok(
      faults.some((fault) => fault.includes(name) && fault.includes(why)),
      `--${name}=${text}: ${faults}`,
    );
  }
  parseFlags(flags, [`--${name}=596h`]);
}
