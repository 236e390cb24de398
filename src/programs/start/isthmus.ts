import "./early.ts";
import { basename } from "node:path";
import { closestWord } from "#base/text";
import { VERSION } from "#base/version";
import { findProgram, type ListedProgram, publicGroups, publicPrograms } from "../programs.ts";
import { EXIT, runProgram } from "../shared/program/index.ts";
import { keepHeapRoom } from "./heap-room.ts";
import { ownMemory, releaseMemoryAtRest } from "./release-memory.ts";
import { suiteHelp } from "./suite-help.ts";

async function runListed(listed: ListedProgram, prefix: string, words: readonly string[]): Promise<number> {
  const program = await listed.load();
  if (listed.memory !== undefined) releaseMemoryAtRest(ownMemory(listed.memory));
  if (listed.memory === "stream") keepHeapRoom();
  return runProgram(program, `${prefix}${program.name}`, words);
}

/** Runs the called program; resolves with its exit code. */
export async function main(): Promise<number> {
  const calledAs = process.env["ISTHMUS_CALLED_AS"] ?? basename(process.argv[1] ?? "isthmus");
  const own = findProgram(calledAs);
  if (own !== undefined) return runListed(own, "", process.argv.slice(2));
  const [word = "help", ...rest] = process.argv.slice(2);
  const program = findProgram(word);
  if (program !== undefined) return runListed(program, "isthmus ", rest);
  if (word === "version" || word === "--version") {
    process.stdout.write(`isthmus ${VERSION}\n`);
    return EXIT.ok;
  }
  if (word === "help" || word === "--help" || word === "-h") return help(word === "help" ? rest[0] : undefined);
  return refuse(word);
}

/** Prints the help of one program, or that of the suite. Resolves with the exit code. */
async function help(word: string | undefined): Promise<number> {
  if (word === undefined || word.startsWith("-")) {
    process.stdout.write(suiteHelp(await publicGroups()));
    return EXIT.ok;
  }
  const program = findProgram(word);
  return program === undefined ? refuse(word) : runListed(program, "isthmus ", ["--help"]);
}

function refuse(word: string): number {
  const closest = closestWord(word, publicPrograms().keys());
  const hint = closest === undefined ? "" : ` (did you mean ${closest}?)`;
  process.stderr.write(`isthmus: there is no program "${word}"${hint}; isthmus --help lists them\n`);
  return EXIT.usage;
}
