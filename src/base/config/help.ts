import { filled } from "#base/text";
import type { Flag, FlagSet } from "./flag.ts";

/** The widest column of names; a longer name has its text on the next line. */
const NAMES_WIDTH = 34;

/**
 * Formats the flags for `--help` as indented lines of at most `columns` characters, in their declared order; last, those that are ignored. A word that does not fit is a
 * line of its own.
 */
export function flagHelp(flags: FlagSet, columns: number): string {
  const rows = effective(flags).map((flag) => ({ left: usage(flag), right: explained(flag) }));
  const width = Math.min(NAMES_WIDTH, Math.max(0, ...rows.map((row) => row.left.length)));
  const indent = " ".repeat(width + 4);
  const lines = rows.flatMap(({ left, right }) => {
    const texts = filled(right, columns - indent.length);
    const [first = "", ...others] = left.length > width ? ["", ...texts] : texts;
    return [`  ${left.padEnd(width)}  ${first}`.trimEnd(), ...others.map((text) => `${indent}${text}`)];
  });
  const ignored = ignoredNames(flags);
  const without = filled(`accepted without effect: ${ignored.join(", ")}`, columns - 4);
  const [first, ...others] = ignored.length > 0 ? without : [];
  return [...lines, ...(first === undefined ? [] : [`  ${first}`, ...others.map((text) => `    ${text}`)])].join("\n");
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

/** A switch that is off by default needs no word of it. */
function explained({ help, placeholder, defaultText }: Flag<unknown>): string {
  const isPlain =
    defaultText === undefined || defaultText === "" || (placeholder === undefined && defaultText === "false");
  return isPlain ? help : `${help} (default ${defaultText})`;
}
