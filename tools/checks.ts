/**
 * The static checks of the tree, in one list, and what brings the tree in line with them.
 *
 *     node tools/checks.ts check [CHECK...]   runs the checks, all or these
 *     node tools/checks.ts ok                 runs all checks, and then the unit tests of what changed
 *     node tools/checks.ts fix                formats, and repairs what the linter can repair
 *     node tools/checks.ts gen                writes the generated files
 *
 * Each command of the list runs whether or not one before it has failed. Its output comes under its name, and the last line names those that
 * have failed. The exit code is 1 if one has failed, and 2 for a wrong command line.
 */
import "./require-node.ts";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join } from "node:path";

/** One check of the tree. */
export interface Check {
  readonly name: string;
  /** Exits with 0 if the tree is right, and names each fault otherwise. It writes nothing. */
  readonly check: readonly string[];
  /** Repairs the sources. */
  readonly fix?: readonly string[];
  /** Writes the generated files that the check compares. */
  readonly gen?: readonly string[];
}

/** A command that has ended. */
export interface Ended {
  readonly name: string;
  /** `undefined` if the command succeeded; otherwise how it ended, such as `exit code 1`. */
  readonly failure: string | undefined;
}

const BIOME = ["node_modules/@biomejs/cli-linux-x64/biome", "check", "--max-diagnostics=none"] as const;
const node = (...words: readonly string[]): readonly string[] => [process.execPath, ...words];
const generator = (script: string): Pick<Check, "check" | "gen"> => ({
  check: node(script, "--check"),
  gen: node(script),
});

/** All checks. Generators are in the order of what they read: manifests contain CRDs. */
export const CHECKS: readonly Check[] = [
  { name: "format", check: [...BIOME, "."], fix: [...BIOME, "--write", "."] },
  { name: "types", check: node("node_modules/typescript/bin/tsc", "-p", ".") },
  { name: "layers", check: node("tools/check-layers.ts"), gen: node("tools/check-layers.ts", "--write") },
  { name: "references", check: node("tools/check-references.ts") },
  { name: "claims", check: node("tools/check-claims.ts") },
  { name: "faces", check: node("tools/check-faces.ts") },
  { name: "comments", check: node("tools/check-comments.ts") },
  { name: "expressions", check: node("tools/check-expressions.ts") },
  { name: "crds", ...generator("tools/gen-crds.ts") },
  { name: "manifests", ...generator("tools/gen-manifests.ts") },
  { name: "docs", ...generator("tools/gen-docs.ts") },
];
const TESTS = { name: "tests", argv: node("tools/test.ts", "unit", "--changed") } as const;

interface Command {
  readonly name: string;
  readonly argv: readonly string[];
}

/** Runs a command in `cwd`; `take` gets what it writes, of both streams. Resolves when it has ended. */
async function runCommand({ name, argv }: Command, cwd: string, take: (text: string) => void): Promise<Ended> {
  const [program = "", ...words] = argv;
  const child = spawn(program, words, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", take);
  try {
    const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
    return { name, failure: code === 0 ? undefined : code === null ? `signal ${signal}` : `exit code ${code}` };
  } catch (error) {
    // The program is not there or cannot be started.
    if (!(error instanceof Error && "syscall" in error)) throw error;
    return { name, failure: error.message };
  }
}

/** Runs commands, `atOnce` of them at a time, and prints the output of each under its name, in the order of the list. */
export async function runCommands(
  commands: readonly Command[],
  { cwd, atOnce, print }: { readonly cwd: string; readonly atOnce: number; readonly print: (text: string) => void },
): Promise<readonly Ended[]> {
  const running: Promise<readonly [Ended, string]>[] = [];
  const slots = Array.from({ length: atOnce }, () => Promise.resolve());
  for (const [at, command] of commands.entries()) {
    const run = (async () => {
      await slots[at % atOnce];
      let output = "";
      const ended = await runCommand(command, cwd, (text) => {
        output += text;
      });
      return [ended, output] as const;
    })();
    slots[at % atOnce] = run.then(() => undefined);
    running.push(run);
  }
  const all: Ended[] = [];
  for (const one of running) {
    const [ended, output] = await one;
    print(
      `== ${ended.name}: ${ended.failure ?? "ok"}\n${output === "" || output.endsWith("\n") ? output : `${output}\n`}`,
    );
    all.push(ended);
  }
  return all;
}

/** Pure: the last line of a run. */
export function summaryOf(all: readonly Ended[]): string {
  const failed = all.filter(({ failure }) => failure !== undefined).map(({ name }) => name);
  const right = `${all.length - failed.length} of ${all.length} are right`;
  return failed.length === 0 ? right : `${right}; failed: ${failed.join(", ")}`;
}

const USAGE = `usage: node tools/checks.ts check [CHECK...] | ok | fix | gen; checks: ${CHECKS.map(({ name }) => name).join(" ")}`;

/** The commands of a command line; `undefined` for a wrong one. */
export function commandsOf([command, ...names]: readonly string[]): readonly Command[] | undefined {
  const unknown = names.some((name) => !CHECKS.some((check) => check.name === name));
  if (unknown || (names.length > 0 && command !== "check")) return undefined;
  if (command !== "check" && command !== "ok" && command !== "fix" && command !== "gen") return undefined;
  const chosen = CHECKS.filter(({ name }) => names.length === 0 || names.includes(name));
  return chosen.flatMap((one) => {
    const argv = one[command === "ok" ? "check" : command];
    return argv === undefined ? [] : [{ name: one.name, argv }];
  });
}

async function main(words: readonly string[]): Promise<number> {
  const commands = commandsOf(words);
  if (commands === undefined) {
    const isHelp = words[0] === "--help" || words[0] === "-h";
    (isHelp ? process.stdout : process.stderr).write(`${USAGE}\n`);
    return isHelp ? 0 : 2;
  }
  const [command] = words;
  const cwd = join(import.meta.dirname, "..");
  const print = (text: string): void => void process.stdout.write(text);
  // A generator reads what the one before it has written.
  const atOnce = command === "gen" ? 1 : availableParallelism();
  const all = [...(await runCommands(commands, { cwd, atOnce, print }))];
  if (command === "ok") {
    print(`== ${TESTS.name}\n`);
    all.push(await runCommand(TESTS, cwd, print));
  }
  print(`${summaryOf(all)}\n`);
  return all.some(({ failure }) => failure !== undefined) ? 1 : 0;
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
