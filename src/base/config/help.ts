import type { Flag, FlagSet } from "./flag.ts";

/** The flags as indented lines for `--help`, in their declared order. */
export function flagHelp(flags: FlagSet): string {
  const rows = Object.values(flags).map((flag) => ({ left: usage(flag), right: explained(flag) }));
  const width = Math.min(34, Math.max(0, ...rows.map((row) => row.left.length)));
  return rows.map(({ left, right }) => `  ${left.padEnd(width)}  ${right}`).join("\n");
}

/** The flags as a Markdown table, for the reference pages. */
export function flagReference(flags: FlagSet): string {
  const rows = Object.values(flags).map((flag) => {
    const initial = flag.defaultText === undefined || flag.defaultText === "" ? "" : `\`${flag.defaultText}\``;
    return `| \`${usage(flag).replaceAll("|", "\\|")}\` | ${initial} | ${flag.help} |`;
  });
  return ["| flag | default | meaning |", "| --- | --- | --- |", ...rows].join("\n");
}

function usage(flag: Flag<unknown>): string {
  return flag.placeholder === undefined ? `--${flag.name}` : `--${flag.name} ${flag.placeholder}`;
}

function explained(flag: Flag<unknown>): string {
  return flag.defaultText === undefined || flag.defaultText === ""
    ? flag.help
    : `${flag.help} (default ${flag.defaultText})`;
}
