import { filled } from "#base/text";

/** The columns of a terminal that the help text fits in. */
export const HELP_COLUMNS = 80;

/** Programs under one heading. */
export interface HelpGroup {
  readonly title: string;
  readonly programs: readonly { readonly name: string; readonly summary: string }[];
}

/** Pure: the text of `isthmus --help`, at most {@link HELP_COLUMNS} wide. Of each summary it has the first sentence; the help of the program has all. */
export function suiteHelp(groups: readonly HelpGroup[]): string {
  const width = Math.max(0, ...groups.flatMap(({ programs }) => programs.map(({ name }) => name.length)));
  const lines = groups.flatMap(({ title, programs }) => [
    "",
    `${title}:`,
    ...programs.flatMap(({ name, summary }) => row(name.padEnd(width), firstSentence(summary))),
  ]);
  return [
    "usage: isthmus PROGRAM [FLAGS]",
    "       isthmus PROGRAM --help   describes a program",
    "       isthmus version          prints the version",
    "",
    "Isthmus is a networking suite for Kubernetes: pod network, Services, tunnel and",
    "uplinks.",
    ...lines,
    "",
    "Each program can also be run by its own name.",
    "",
  ].join("\n");
}

/** A name, and a text beside it on as many lines as it needs. */
function row(name: string, text: string): readonly string[] {
  const [first = "", ...others] = filled(text, HELP_COLUMNS - name.length - 4);
  return [`  ${name}  ${first}`, ...others.map((line) => `${" ".repeat(name.length + 4)}${line}`)];
}

function firstSentence(text: string): string {
  const end = text.indexOf(". ");
  return end === -1 ? text : text.slice(0, end + 1);
}
