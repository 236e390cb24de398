/** The start of the command line of this executable, with which a process can run it again with other arguments. */
export function ownCommand(): readonly string[] {
  return [process.execPath, ...process.execArgv, process.argv[1] ?? ""];
}
