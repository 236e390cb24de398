import { type ListenAddress, parseListenAddress } from "./address.ts";
import { parseDuration } from "./duration.ts";
import { ConfigError } from "./errors.ts";

/** One flag. `parse` throws {@link ConfigError} `invalid-value`. */
export interface Flag<T> {
  /** Without the dashes. */
  readonly name: string;
  /** Other spellings that are taken; not shown. */
  readonly aliases?: readonly string[];
  readonly help: string;
  /** How the value is called in the help; `undefined` for a switch. */
  readonly placeholder: string | undefined;
  /** As it would be typed; `undefined` if there is none. */
  readonly defaultText: string | undefined;
  readonly initial: T;
  parse(text: string, before: T): T;
}

/** The longest duration of a Node timer, in whole hours: it treats more than 2^31 - 1 ms as zero. */
export const TIMER_MAX = "596h";

export type FlagSet = Readonly<Record<string, Flag<unknown>>>;

/** The parsed values, under the keys of the set. */
export type FlagValues<Set extends FlagSet> = { readonly [Key in keyof Set]: Set[Key]["initial"] };

/** Any text. */
export function stringFlag(name: string, initial: string, help: string, placeholder = "TEXT"): Flag<string> {
  return { name, help, placeholder, defaultText: initial, initial, parse: (text) => text };
}

/** Any text, or `undefined` where the flag is not given. */
export function optionalFlag(name: string, help: string, placeholder = "TEXT"): Flag<string | undefined> {
  return { name, help, placeholder, defaultText: undefined, initial: undefined, parse: (text) => text };
}

/** A value with a parser of its own; the parser's errors become faults of this flag. */
export function parsedFlag<T>(
  name: string,
  parse: (text: string) => T,
  help: string,
  placeholder: string,
): Flag<T | undefined> {
  return { name, help, placeholder, defaultText: undefined, initial: undefined, parse };
}

/** May be given several times; `undefined`-free list, empty by default. */
export function listFlag(name: string, help: string, placeholder = "TEXT"): Flag<readonly string[]> {
  return repeatedFlag(name, (text) => text, help, placeholder);
}

/** May be given several times, each value with a parser of its own; the parser's errors become faults of this flag. */
export function repeatedFlag<T>(
  name: string,
  parse: (text: string) => T,
  help: string,
  placeholder: string,
): Flag<readonly T[]> {
  return {
    name,
    help: `${help} (may be given several times)`,
    placeholder,
    defaultText: undefined,
    initial: [],
    parse: (text, before) => [...before, parse(text)],
  };
}

/** `--name`, `--name=true` or `--name=false`. */
export function switchFlag(name: string, initial: boolean, help: string): Flag<boolean> {
  return { name, help, placeholder: undefined, defaultText: String(initial), initial, parse: parseSwitch };
}

/** A whole number from `min` to `max`, both included. */
export function integerFlag(
  name: string,
  initial: number,
  help: string,
  range: { readonly min: number; readonly max: number },
): Flag<number> {
  const parse = (text: string): number => {
    const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= range.min && value <= range.max)) {
      throw new ConfigError("invalid-value", [`"${text}" is not a whole number from ${range.min} to ${range.max}`]);
    }
    return value;
  };
  return { name, help, placeholder: "N", defaultText: String(initial), initial, parse };
}

/**
 * A Go duration; the value is in milliseconds. `min`: less is refused, such as an interval that would never pause. `max`: more is
 * refused; needed if the value is the duration of a Node timer ({@link TIMER_MAX}).
 */
export function durationFlag(
  name: string,
  initial: string,
  help: string,
  { min = "0s", max }: { readonly min?: string; readonly max?: string } = {},
): Flag<number> {
  const parse = (text: string): number => {
    const value = parseDuration(text);
    if (value < parseDuration(min)) {
      throw new ConfigError("invalid-value", [`"${text}" is too short: at least ${min}`]);
    }
    if (max !== undefined && value > parseDuration(max)) {
      throw new ConfigError("invalid-value", [`"${text}" is too long: at most ${max}`]);
    }
    return value;
  };
  return { name, help, placeholder: "DURATION", defaultText: initial, initial: parseDuration(initial), parse };
}

/** A listen address, such as `:9384`. */
export function addressFlag(name: string, initial: string, help: string): Flag<ListenAddress> {
  return {
    name,
    help,
    placeholder: "ADDRESS",
    defaultText: initial,
    initial: parseListenAddress(initial),
    parse: parseListenAddress,
  };
}

/** One of a closed set of words. */
export function choiceFlag<const Choice extends string>(
  name: string,
  choices: readonly Choice[],
  initial: Choice,
  help: string,
): Flag<Choice> {
  const parse = (text: string): Choice => {
    const choice = choices.find((word) => word === text);
    if (choice === undefined) {
      throw new ConfigError("invalid-value", [`"${text}" is none of ${choices.join(", ")}`]);
    }
    return choice;
  };
  return { name, help, placeholder: choices.join("|"), defaultText: initial, initial, parse };
}

function parseSwitch(text: string): boolean {
  if (["true", "1", "t", "T", "TRUE", "True"].includes(text)) return true;
  if (["false", "0", "f", "F", "FALSE", "False"].includes(text)) return false;
  throw new ConfigError("invalid-value", [`"${text}" is neither true nor false`]);
}
