import { dirname, join } from "node:path";

/** The start of the command line of this executable, with which a process can run it again with other arguments. */
export function ownCommand(): readonly string[] {
  return [process.execPath, ...process.execArgv, process.argv[1] ?? ""];
}

/**
 * The start of the command line by which a node runs the programs of this executable: the launcher beside the bundle, which gives each program
 * its memory settings and the compiled code of the build. This process's own where no launcher started it, as from sources.
 */
export function launcherCommand(): readonly string[] {
  const isLaunched = process.env["ISTHMUS_CALLED_AS"] !== undefined;
  return isLaunched ? [join(dirname(process.argv[1] ?? ""), "isthmus")] : ownCommand();
}
