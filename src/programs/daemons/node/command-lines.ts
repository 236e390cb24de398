import { ConfigError } from "#base/config";

/** One program of the node, and its command line. */
export interface PartCommand {
  readonly name: string;
  readonly argv: readonly string[];
}

/**
 * Pure: splits `coild --socket=/run/x -- service-proxy --config=/y` into the command lines of the parts. Throws `ConfigError` naming every
 * fault: no part, a part that is not in `known`, a part that is given twice.
 */
export function splitCommandLines(words: readonly string[], known: readonly string[]): PartCommand[] {
  const commands: PartCommand[] = [];
  for (let rest = words; rest.length > 0; ) {
    const end = rest.indexOf("--");
    const [name = "", ...argv] = end < 0 ? rest : rest.slice(0, end);
    commands.push({ name, argv });
    rest = end < 0 ? [] : rest.slice(end + 1);
  }
  const faults = commands.flatMap(({ name }, at) => {
    if (name === "") return [`command line ${at + 1} is empty; a program's name must follow each --`];
    if (!known.includes(name))
      return [`"${name}" is not a program of a node; the programs of a node are: ${known.join(", ")}`];
    return commands.findIndex((one) => one.name === name) < at
      ? [`${name} is given twice; give each program once`]
      : [];
  });
  if (commands.length === 0) faults.push(`no program is given; the programs of a node are: ${known.join(", ")}`);
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  return commands;
}
