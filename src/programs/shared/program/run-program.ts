import { ConfigError, type FlagSet, type FlagValues, flagHelp, parseFlags, switchFlag } from "#base/config";
import { describeError, ExpectedError, isAbortError } from "#base/errors";
import type { Estate } from "#base/estate";
import type { Registry } from "#base/metrics";
import { filled, printable, printableStack } from "#base/text";
import { VERSION } from "#base/version";
import type { Privileges } from "./privileges.ts";

/** One program of the suite: its summary, its flags, and the function that runs it. */
export interface Program<Set extends FlagSet = FlagSet> {
  readonly name: string;
  /** One sentence for the help text. */
  readonly summary: string;
  /** Words after the flags, as the usage line shows them, such as `POD -- CMD`. */
  readonly words?: {
    readonly usage: string;
    readonly max: number;
    /** The first word ends the flags: the remaining words are a command line of their own. */
    readonly stopAtFirst?: boolean;
  };
  readonly flags: Set;
  /** Further paragraphs of the help. */
  readonly notes?: readonly string[];
  /** The functions that declare the program's metrics. The program calls them, and the reference page lists what they declare. */
  readonly metrics?: readonly ((registry: Registry) => unknown)[];
  /** All that the program owns and serves, by its flags (docs/design/estate.md). Pure. The tables of its reference page are made of that of the default flags. */
  readonly estate?: (values: FlagValues<Set>) => Estate;
  /** The capabilities that the program looks for at its start. Default: none. */
  readonly privileges?: Privileges;
  /** Exit code for a wrong command line. Default 2; set if the program that this one replaces has another exit code. */
  readonly usageExit?: number;
  /**
   * The effect of a second SIGINT or SIGTERM: `"hurry"` aborts {@link ProgramContext.hurry}; a number ends the process at once with that
   * exit code. Default: 128 + the number of the signal.
   */
  readonly secondSignal?: "hurry" | number;
  /** Runs the program until its work is done or the signal aborts. Resolves with the exit code; `undefined` means 0. */
  readonly run: (context: ProgramContext<Set>) => Promise<number | undefined>;
}

export interface ProgramContext<Set extends FlagSet> {
  readonly values: FlagValues<Set>;
  readonly words: readonly string[];
  /** Names of the flags that were given. */
  readonly given: ReadonlySet<string>;
  /** Aborts at the first SIGINT or SIGTERM. */
  readonly signal: AbortSignal;
  /** Aborts at the second SIGINT or SIGTERM, in programs with `secondSignal: "hurry"`. */
  readonly hurry: AbortSignal;
  /** True if the process runs only this program. The program may then drop capabilities or change settings of the process. */
  readonly ownsProcess: boolean;
}

/** Keeps the type of a program's flags. */
export function defineProgram<const Set extends FlagSet>(program: Program<Set>): Program {
  return program as unknown as Program;
}

/** Columns of a help text. */
const HELP_COLUMNS = 100;
const COMMON = {
  help: { ...switchFlag("help", false, "show this text and exit; also -h"), aliases: ["h"] },
  version: switchFlag("version", false, "print the version and exit"),
};

/** Exit codes: done, failed, wrong command line. */
export const EXIT = { ok: 0, failed: 1, usage: 2 } as const;

/** The text of `--help`; `title` is the name that the caller typed for the program. */
export function helpText(program: Program, title: string): string {
  const words = program.words === undefined ? "" : ` ${program.words.usage}`;
  const parts = [
    filled(`usage: ${title} [FLAGS]${words}`, HELP_COLUMNS).join("\n       "),
    paragraph(program.summary),
    flagHelp({ ...program.flags, ...COMMON }, HELP_COLUMNS),
    ...(program.notes ?? []).map(paragraph),
  ];
  return `${parts.join("\n\n")}\n`;
}

/** Fills each line of a text; a line that begins with a space stays as it is, as commands do. */
function paragraph(text: string): string {
  return text
    .split("\n")
    .flatMap((line) => (line.startsWith(" ") ? [line] : filled(line, HELP_COLUMNS)))
    .join("\n");
}

/**
 * Runs a program with a command line; resolves with its exit code. Each fault is printed in one line, which begins
 * with `title`: the words that the caller typed, such as `isthmus lab`, or `coild` for a program under its own name.
 */
export async function runProgram(program: Program, title: string, argv: readonly string[]): Promise<number> {
  const { signal, hurry, abort } = abortOnSignals(program.secondSignal);
  watchOutput(title, abort);
  try {
    const { values, words, given } = parseProgram(program, argv);
    if (values.help) return print(helpText(program, title));
    if (values.version) return print(`${title} ${VERSION}\n`);
    return (await program.run({ values, words, given, signal, hurry, ownsProcess: true })) ?? EXIT.ok;
  } catch (error) {
    return report(title, error, { signal, usageExit: program.usageExit ?? EXIT.usage });
  }
}

/** Reads a program's command line. Throws `ConfigError` naming every fault. */
export function parseProgram(program: Program, argv: readonly string[]) {
  return parseFlags({ ...program.flags, ...COMMON }, argv, {
    maxWords: program.words?.max ?? 0,
    stopAtWord: program.words?.stopAtFirst === true,
  });
}

function report(
  title: string,
  error: unknown,
  { signal, usageExit }: { readonly signal: AbortSignal; readonly usageExit: number },
): number {
  if (error instanceof ConfigError) {
    for (const fault of error.faults) complain(`${title}: ${fault}`);
    complain(`${title} --help lists the flags`);
    return usageExit;
  }
  if (signal.aborted && (error === signal.reason || isAbortError(error))) return EXIT.failed;
  if (error instanceof ExpectedError) {
    complain(`${title}: ${describeError(error).replaceAll("\n", " ")}`);
    return EXIT.failed;
  }
  process.stderr.write(`${title}: this is a bug in Isthmus ${VERSION}: ${printableStack(error)}\n`);
  return EXIT.failed;
}

function print(text: string): number {
  process.stdout.write(text);
  return EXIT.ok;
}

/** One line, whatever is in it: faults name what others have written. */
function complain(line: string): void {
  process.stderr.write(`${printable(line)}\n`);
}

/** The first SIGINT or SIGTERM requests an orderly end. The second signal ends the process at once, or aborts `hurry`. */
function abortOnSignals(second: Program["secondSignal"]): {
  readonly signal: AbortSignal;
  readonly hurry: AbortSignal;
  readonly abort: (reason: DOMException) => void;
} {
  const [first, urgent] = [new AbortController(), new AbortController()];
  for (const name of ["SIGINT", "SIGTERM"] as const) {
    process.on(name, () => {
      const reason = new DOMException(`received ${name}`, "AbortError");
      if (!first.signal.aborted) first.abort(reason);
      else if (second === "hurry" && !urgent.signal.aborted) urgent.abort(reason);
      else process.exit(typeof second === "number" ? second : name === "SIGINT" ? 130 : 143);
    });
  }
  return { signal: first.signal, hurry: urgent.signal, abort: (reason) => first.abort(reason) };
}

/** A reader that has gone, such as `head`, is an orderly end. Any other failure of the output is named, and the exit code is 1. */
function watchOutput(title: string, abort: (reason: DOMException) => void): void {
  // There is nobody left to tell.
  process.stderr.on("error", () => undefined);
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    abort(new DOMException("nobody reads the output", "AbortError"));
    if (error.code === "EPIPE") return;
    complain(`${title}: cannot write the output: ${describeError(error)}`);
    process.once("exit", () => {
      process.exitCode = EXIT.failed;
    });
  });
}
