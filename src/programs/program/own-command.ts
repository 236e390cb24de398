/** The command line of this very program, so that it can be started again with other arguments. */
export function ownCommand(): readonly string[] {
  return [process.execPath, ...process.execArgv, process.argv[1] ?? ""];
}
