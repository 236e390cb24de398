import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { BUNDLE, type SuiteCommand, suiteCommands } from "#features/suite-report";

/** A process that runs a program of the suite. */
export interface SuiteProcess extends SuiteCommand {
  readonly pid: number;
}

/**
 * The programs of the suite that run as processes in the network namespace of this process: on a node, those of the node, also those in containers with
 * the node's network. A process that may not be looked at is left out. `everywhere`: those in other network namespaces too, such as routers of Egresses.
 */
export function suiteProcesses({
  everywhere = false,
}: {
  readonly everywhere?: boolean;
} = {}): readonly SuiteProcess[] {
  const own = readlinkSync("/proc/self/ns/net");
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((name): readonly SuiteProcess[] => {
      const words =
        optional(() => readFileSync(`/proc/${name}/cmdline`, "utf8"))
          ?.split("\0")
          .slice(0, -1) ?? [];
      const named = suiteCommands(words);
      const commands = named.length === 0 ? calledAs(name, words) : named;
      if (commands.length === 0) return [];
      if (!everywhere && optional(() => readlinkSync(`/proc/${name}/ns/net`)) !== own) return [];
      return commands.map((command) => ({ ...command, pid: Number(name) }));
    });
}

/** A program that was started by its link: the launcher tells the name by a variable, and the command line does not have it. */
function calledAs(pid: string, words: readonly string[]): readonly SuiteCommand[] {
  const at = words.findIndex((word) => BUNDLE.test(basename(word)));
  if (at < 0) return [];
  const name = variableOf(pid, "ISTHMUS_CALLED_AS");
  return name === undefined ? [] : suiteCommands([name, ...words.slice(at + 1)]);
}

/** A variable of a process's environment; `undefined` also for one that may not be looked at. */
export function variableOf(pid: number | string, name: string): string | undefined {
  const environment = optional(() => readFileSync(`/proc/${pid}/environ`, "utf8"))?.split("\0") ?? [];
  return environment.find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1);
}

/** The result of reading /proc or /sys; `undefined` for a process that has ended, and for what this process may not read. */
export function optional<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof Error && "code" in error && GONE.has(String(error.code))) return undefined;
    throw error;
  }
}

const GONE: ReadonlySet<string> = new Set([
  "ENOENT",
  "ESRCH",
  "EACCES",
  "EPERM",
  "EINVAL",
  "ENOTDIR",
  "EISDIR",
  "ELOOP",
]);
