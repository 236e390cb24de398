import { ExpectedError } from "#base/errors";
import { closestWord } from "#base/text";
import { ConfigError } from "./errors.ts";
import type { Flag, FlagSet, FlagValues } from "./flag.ts";

export interface ParsedFlags<Set extends FlagSet> {
  readonly values: FlagValues<Set>;
  /** The arguments that are not flags, in order. After `--` every argument is a word. */
  readonly words: readonly string[];
  /** Names of the flags that were given. */
  readonly given: ReadonlySet<string>;
}

/** Parses a command line (without program name). Throws one {@link ConfigError} that names every fault. */
export function parseFlags<Set extends FlagSet>(
  flags: Set,
  argv: readonly string[],
  options: {
    /** The number of words that may follow the flags. Default 0. */
    readonly maxWords?: number;
    /** If true, the first word ends the flags: the rest is a command line of its own. */
    readonly stopAtWord?: boolean;
  } = {},
): ParsedFlags<Set> {
  const byName = new Map(
    Object.entries(flags).flatMap(([key, flag]) =>
      [flag.name, ...(flag.aliases ?? [])].map((name) => [name, { key, flag }] as const),
    ),
  );
  const values: Record<string, unknown> = {};
  for (const [key, flag] of Object.entries(flags)) values[key] = flag.initial;
  const words: string[] = [];
  const given = new Set<string>();
  const faults: string[] = [];

  for (let at = 0; at < argv.length; at += 1) {
    const word = argv[at] ?? "";
    if (word === "--" || (options.stopAtWord === true && !word.startsWith("-"))) {
      words.push(...argv.slice(word === "--" ? at + 1 : at));
      break;
    }
    const match = /^--?([A-Za-z][\w-]*)(?:=([\s\S]*))?$/.exec(word);
    if (match === null) {
      words.push(word);
      continue;
    }
    const name = known(match[1] ?? "", byName);
    const short = byName.has(name) ? undefined : attached(word, (one) => byName.get(one)?.flag);
    const entry = byName.get(short?.name ?? name);
    if (entry === undefined) {
      faults.push(`unknown flag --${match[1]}${suggestion(match[1] ?? "", [...byName.keys()])}`);
      continue;
    }
    let text = short?.text ?? match[2];
    if (text === undefined && entry.flag.placeholder === undefined) text = "true";
    if (text === undefined) {
      at += 1;
      text = argv[at];
    }
    if (text === undefined) {
      faults.push(`--${entry.flag.name} needs a value: ${entry.flag.placeholder}`);
      continue;
    }
    given.add(entry.flag.name);
    try {
      values[entry.key] = entry.flag.parse(text, values[entry.key]);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      faults.push(`--${entry.flag.name}: ${error.message}`);
    }
  }
  if (options.maxWords !== undefined || options.stopAtWord !== true) {
    const extra = words.slice(options.maxWords ?? 0);
    if (extra.length > 0) faults.push(`unexpected ${extra.map((word) => `"${word}"`).join(" ")}`);
  }
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  return { values: Object.freeze(values) as FlagValues<Set>, words, given };
}

/** The name as it is declared: underscores count as dashes, as in Kubernetes' programs. */
function known(name: string, byName: ReadonlyMap<string, unknown>): string {
  return byName.has(name) ? name : name.replaceAll("_", "-");
}

/** `-v4`: a flag of one letter with its value behind it, as in Go's pflag. */
function attached(
  word: string,
  flagOf: (name: string) => Flag<unknown> | undefined,
): { readonly name: string; readonly text: string } | undefined {
  const [, name = "", text = ""] = /^-([A-Za-z])([^-=].*)$/s.exec(word) ?? [];
  return flagOf(name)?.placeholder === undefined ? undefined : { name, text };
}

/** " (did you mean --x?)" for a name that is close to a known one. */
function suggestion(name: string, known: readonly string[]): string {
  const closest = closestWord(name, known);
  return closest === undefined ? "" : ` (did you mean --${closest}?)`;
}
