import type { Flag, FlagSet } from "./flag.ts";

/** The flags as indented lines for `--help`, in their declared order; last, in one line, those that are ignored. */
export function flagHelp(flags: FlagSet): string {
  const rows = effective(flags).map((flag) => ({ left: usage(flag), right: explained(flag) }));
  const width = Math.min(34, Math.max(0, ...rows.map((row) => row.left.length)));
  const lines = rows.map(({ left, right }) => `  ${left.padEnd(width)}  ${right}`);
  const ignored = ignoredNames(flags);
  return [...lines, ...(ignored.length > 0 ? [`  accepted without effect: ${ignored.join(", ")}`] : [])].join("\n");
}

/** The flags as a Markdown table, for the reference pages; after it a sentence that names those that are ignored. */
export function flagReference(flags: FlagSet): string {
  const rows = effective(flags).map((flag) => {
    const initial = flag.defaultText === undefined || flag.defaultText === "" ? "" : `\`${flag.defaultText}\``;
    return `| \`${usage(flag).replaceAll("|", "\\|")}\` | ${initial} | ${flag.help} |`;
  });
  const table = ["| flag | default | meaning |", "| --- | --- | --- |", ...rows].join("\n");
  const ignored = ignoredNames(flags).map((name) => `\`${name}\``);
  if (ignored.length === 0) return table;
  return `${table}\n\nAccepted without effect, with any value and a line in the log: ${ignored.join(", ")}.`;
}

function effective(flags: FlagSet): readonly Flag<unknown>[] {
  return Object.values(flags).filter(({ ignored }) => ignored === undefined);
}

function ignoredNames(flags: FlagSet): readonly string[] {
  return Object.values(flags).flatMap(({ name, ignored }) => (ignored === undefined ? [] : `--${name}`));
}

function usage(flag: Flag<unknown>): string {
  return flag.placeholder === undefined ? `--${flag.name}` : `--${flag.name} ${flag.placeholder}`;
}

function explained(flag: Flag<unknown>): string {
  return flag.defaultText === undefined || flag.defaultText === ""
    ? flag.help
    : `${flag.help} (default ${flag.defaultText})`;
}
