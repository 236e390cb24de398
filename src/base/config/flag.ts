import { type ListenAddress, parseListenAddress } from "./address.ts";
import { parseDuration } from "./duration.ts";
import { ConfigError } from "./errors.ts";

/** One flag. `parse` throws {@link ConfigError} `invalid-value`. */
export interface Flag<T> {
  /** The name without the dashes. */
  readonly name: string;
  /** Other names that the parser accepts; the help does not show them. */
  readonly aliases?: readonly string[];
  readonly help: string;
  /** The word for the value in the help; `undefined` for a switch. */
  readonly placeholder: string | undefined;
  /** The default as a user would type it; `undefined` if the flag has no default. */
  readonly defaultText: string | undefined;
  readonly initial: T;
  /** The flag has no effect here: the help names it in one line with the others. `instead`: what has its effect here, if anything. */
  readonly ignored?: { readonly instead?: string };
  parse(text: string, before: T): T;
}

/** The longest duration of a Node timer, in whole hours: Node treats more than 2^31 - 1 ms as zero. */
export const TIMER_MAX = "596h";

export type FlagSet = Readonly<Record<string, Flag<unknown>>>;

/** The parsed values, under the keys of the set. */
export type FlagValues<Set extends FlagSet> = { readonly [Key in keyof Set]: Set[Key]["initial"] };

/** A flag whose value is any text. */
export function stringFlag(name: string, initial: string, help: string, placeholder = "TEXT"): Flag<string> {
  return { name, help, placeholder, defaultText: initial, initial, parse: (text) => text };
}

/** A flag whose value is any text, or `undefined` if the flag is not given. */
export function optionalFlag(name: string, help: string, placeholder = "TEXT"): Flag<string | undefined> {
  return { name, help, placeholder, defaultText: undefined, initial: undefined, parse: (text) => text };
}

/** A flag whose value has a parser of its own; the parser's errors become faults of this flag. */
export function parsedFlag<T>(
  name: string,
  parse: (text: string) => T,
  help: string,
  placeholder: string,
): Flag<T | undefined> {
  return { name, help, placeholder, defaultText: undefined, initial: undefined, parse };
}

/** A flag that may be given several times. Its value is the list of all texts, empty by default. */
export function listFlag(name: string, help: string, placeholder = "TEXT"): Flag<readonly string[]> {
  return repeatedFlag(name, (text) => text, help, placeholder);
}

/** A flag that may be given several times, each time with values between commas. An empty value goes to the parser too; its errors become faults of this flag. */
export function commaFlag<T>(
  name: string,
  parse: (text: string) => T,
  help: string,
  placeholder: string,
): Flag<readonly T[]> {
  return {
    ...repeatedFlag(name, parse, help, placeholder),
    parse: (text, before) => [...before, ...text.split(",").map((part) => parse(part.trim()))],
  };
}

/** A flag that may be given several times, each value with a parser of its own; the parser's errors become faults of this flag. */
export function repeatedFlag<T>(
  name: string,
  parse: (text: string) => T,
  help: string,
  placeholder: string,
): Flag<readonly T[]> {
  return {
    name,
    help: `${help} (the flag can be repeated)`,
    placeholder,
    defaultText: undefined,
    initial: [],
    parse: (text, before) => [...before, parse(text)],
  };
}

/**
 * A flag of the program that this one replaces, without an effect here: every value is accepted. Its value is whether the flag was given.
 * `placeholder`: absent for a switch. `instead`: the flags that have its effect here.
 */
export function ignoredFlag(
  name: string,
  { placeholder, instead }: { readonly placeholder?: string; readonly instead?: string } = {},
): Flag<boolean> {
  return {
    name,
    help: "no effect",
    placeholder,
    defaultText: undefined,
    initial: false,
    ignored: instead === undefined ? {} : { instead },
    parse: () => true,
  };
}

/** The ignored flags that were given, for the log: `--name`, or `--name (use --other)`. Pure. */
export function ignoredGiven(flags: FlagSet, values: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(flags).flatMap(([key, { name, ignored }]) => {
    if (ignored === undefined || values[key] !== true) return [];
    return [ignored.instead === undefined ? `--${name}` : `--${name} (use ${ignored.instead})`];
  });
}

/** A switch: `--name`, `--name=true` or `--name=false`. */
export function switchFlag(name: string, initial: boolean, help: string): Flag<boolean> {
  return { name, help, placeholder: undefined, defaultText: String(initial), initial, parse: parseSwitch };
}

/** A flag whose value is a whole number from `min` to `max`, both included. */
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
 * A flag whose value is a Go duration, in milliseconds. A value below `min` is refused, for example an interval of 0, and a value above
 * `max`. `max` is needed if the value is the duration of a Node timer ({@link TIMER_MAX}).
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
      throw new ConfigError("invalid-value", [`"${text}" is too short: the minimum is ${min}`]);
    }
    if (max !== undefined && value > parseDuration(max)) {
      throw new ConfigError("invalid-value", [`"${text}" is too long: the maximum is ${max}`]);
    }
    return value;
  };
  return { name, help, placeholder: "DURATION", defaultText: initial, initial: parseDuration(initial), parse };
}

/** A flag whose value is a listen address, such as `:9384`. */
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

/** A flag whose value is one of a closed set of words. */
export function choiceFlag<const Choice extends string>(
  name: string,
  choices: readonly Choice[],
  initial: Choice,
  help: string,
): Flag<Choice> {
  const parse = (text: string): Choice => {
    const choice = choices.find((word) => word === text);
    if (choice === undefined) {
      throw new ConfigError("invalid-value", [`"${text}" is not one of ${choices.join(", ")}`]);
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
